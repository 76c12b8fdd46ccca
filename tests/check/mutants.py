# SPDX-License-Identifier: Apache-2.0
"""Chooses small changes of lib/ that a test ought to notice. What is chosen depends on the seed and on the text of each file alone, so
a change of one file leaves the choice in the others as it was."""

import bisect
import dataclasses
import random
import re

# Where the machine lacks an instruction set, nothing runs that could notice. The names are those of /proc/cpuinfo.
NEEDS = {
    "lib/kernels/pairs.c": "avx512_bf16", "lib/kernels/tiles.c": "amx_tile", "lib/simd/amx.h": "amx_tile",
    "lib/simd/avx2.h": "avx2", "lib/simd/avx512.h": "avx512f", "lib/simd/avx512bf16.h": "avx512_bf16",
    "lib/kernels/tiles_parts.c": "avx512f", "lib/simd/parts512.h": "avx512f", "lib/simd/pairs512.h": "avx512_bf16", "lib/simd/x86.h": "avx2", "lib/simd/neon.h": "asimd",
}  # fmt: skip

# Tests of operations are made from the schema, so they take what it says for granted. The tests of the languages hold it to their own
# expectations.
PASSED_OVER = ("lib/ops/schema/", "lib/include/")

# What changes no result: advice to the processor and the compiler, texts that only people read, how fast something is, and how much memory
# is asked for, which a checker of memory must see (./run check).
NO_RESULT = re.compile(r"prefetch|PEAK|assert\(|__builtin|_Static|\balignas\b|\bsizeof\b|alloc|NOLINT|\bexplain|_text_|\(void\)")

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str  # from the root of the tree
    line: int
    kind: str
    at: int  # of the file's text
    before: str
    after: str

    def apply(self, text):
        assert text[self.at :].startswith(self.before)
        return text[: self.at] + self.after + text[self.at + len(self.before) :]

    def __str__(self):
        def short(text):
            text = " ".join(text.split())
            return text if len(text) <= 70 else text[:67] + "..."

        return f"{self.file}:{self.line} {self.kind}: {short(self.before)} -> {short(self.after) or '(nothing)'}"


def blank(text):
    """The text with comments, strings and directives as blanks, so that places remain."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.M | re.S)


def bodies(code):
    """Where bodies of functions are: from a brace at the end of a line that begins in the first column to one in the first column."""
    for m in re.finditer(r"^[A-Za-z][^;{}]*\)\s*\{\n(.*?)^\}", code, flags=re.M | re.S):
        yield m.span(1)


def end_of(code, at, end):
    """Behind the bracket that closes the one at `at`, or None."""
    depth = 0
    for i in range(at, end):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0:
            return i + 1
    return None


def messages(text, code, begin, end):
    """Where the arguments of error messages are, and what loops are told of their cost."""
    for m in re.compile(r"\btartan_i_parallel\(").finditer(code, begin, end):
        yield m.end(), end_of(code, m.end() - 1, end) or m.end()
    for m in re.compile(r"\b(?:CHECK\w*|FAIL\w*|tartan_i_fail)\(").finditer(code, begin, end):
        close = end_of(code, m.end() - 1, end)
        quote = text.find('"', m.end(), close or m.end())
        if quote >= 0:
            yield quote, close


# The larger or the smaller of two numbers is the same, whichever comes first.
EXTREME = re.compile(r"([\w.>\[\]-]+) [<>]=? ([\w.>\[\]-]+)\)? \? (?:\1 : \2|\2 : \1)\b")


def of_body(code, begin, end):
    """(kind, at, length, what comes instead) of every change of a body."""
    heads = []  # of loops: one pass too many is out of bounds, which is not seen as a rule, so the last pass is dropped instead
    for m in re.compile(r"\bfor \(").finditer(code, begin, end):
        heads.append((m.end(), end_of(code, m.end() - 1, end) or m.end()))
    for m in re.compile(r" (<=?|>=?|==|!=) ").finditer(code, begin, end):
        if any(a <= m.start() < b for a, b in heads):
            if m[1] in ("<", "<="):
                yield "bound", m.start(), len(m[0]), f" + 1 {m[1]} "
        else:
            yield "comparison", m.start(), len(m[0]), f" {COMPARISONS[m[1]]} "
    for m in re.compile(r"\bif \(").finditer(code, begin, end):
        close = end_of(code, m.end() - 1, end)
        if close:
            yield "condition", m.end() - 1, close - m.end() + 1, f"(!{code[m.end() - 1 : close]})"
    for m in re.compile(r" (&&|\|\|)(?=\s)").finditer(code, begin, end):
        yield "logic", m.start() + 1, 2, "||" if m[1] == "&&" else "&&"
    for m in re.compile(r"(?<=[\w)\]]) ([+*-]) (?=[\w(])").finditer(code, begin, end):
        yield "arithmetic", m.start() + 1, 1, {"+": "-", "-": "+", "*": "+"}[m[1]]
    for m in re.compile(r"(?<![\w.])(\d+|true|false)(?![\w.])").finditer(code, begin, end):
        yield "constant", m.start(), len(m[0]), {"true": "false", "false": "true"}.get(m[0]) or str(int(m[0]) + 1)
    for m in re.compile(r"^ +((?:[a-z]\w*|PASS|TRY|CHECK\w*|FAIL\w*)\()", flags=re.M).finditer(code, begin, end):
        close = end_of(code, m.end() - 1, end)
        if close and code[close : close + 2] == ";\n" and not m[1].startswith(("sizeof", "if", "for", "while", "switch", "return")):
            yield "statement", m.start(1), close + 1 - m.start(1), ";"
    for m in re.compile(r"^ +((?:\*?[a-z][\w.>\[\]-]*) (?:[-+*/|&]?=) [^;\n]*;)$", flags=re.M).finditer(code, begin, end):
        yield "assignment", m.start(1), len(m[1]), ";"
    for m in re.compile(r"\b(continue|break);").finditer(code, begin, end):
        yield "jump", m.start(), len(m[0]), ";"


def of_file(file, text):
    """Every change of a file that may be chosen."""
    code = blank(text)
    spans = [(code.find("\n", text.find("*/")) + 1, len(code))] if file.endswith(".def") else bodies(code)
    lines, ends = text.splitlines(), [m.start() for m in re.finditer("\n", text)]
    for begin, end in spans:
        quiet = list(messages(text, code, begin, end)) + [m.span() for m in EXTREME.finditer(code, begin, end)]
        for kind, at, length, after in of_body(code, begin, end):
            number = bisect.bisect_left(ends, at) + 1
            statement = text[at : at + length] if kind in ("statement", "condition") else lines[number - 1]
            if any(a <= at < b for a, b in quiet):
                continue
            if not NO_RESULT.search(statement) and not lines[number - 1].rstrip().endswith("\\"):
                # The blanks of strings go back where a condition is written anew.
                new = f"(!{text[at : at + length]})" if kind == "condition" else after
                yield Mutant(file, number, kind, at, text[at : at + length], new)


def in_order(file, text, seed, equal):
    """The changes of a file in the order in which they are chosen: kinds in turn, so that the frequent ones leave room."""
    chance = random.Random(f"{seed} {file}")
    kinds, lines = {}, text.splitlines()
    for m in of_file(file, text):
        if not any(e[0] == file and e[1] in lines[m.line - 1] and m.kind in e[2].split() for e in equal):
            kinds.setdefault(m.kind, []).append(m)
    for group in kinds.values():
        chance.shuffle(group)
    order = []
    while kinds:
        for kind in chance.sample(sorted(kinds), len(kinds)):
            order.append(kinds[kind].pop())
            if not kinds[kind]:
                del kinds[kind]
    return order


def files(root, features):
    """The files of lib/ that have something to change, by name."""
    for path in sorted((root / "lib").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in (".c", ".h", ".def") and not name.startswith(PASSED_OVER) and NEEDS.get(name, "") in ("", *features):
            yield name, path.read_text()


def shares(orders, count):
    """How many of each file: one, and of the rest in proportion to what there is."""
    whole = sum(len(order) for order in orders.values())
    rest = max(0, count - len(orders))
    taken, passed = {}, 0
    for name, order in orders.items():
        before = passed * rest // whole
        passed += len(order)
        taken[name] = min(len(order), 1 + passed * rest // whole - before)
    return taken
