# SPDX-License-Identifier: Apache-2.0
"""Makes docs/manners.md of what the languages' programs print (see python.py):

    table.py [--check] OPERATIONS DOCUMENT LANGUAGE=COMMAND...

LANGUAGE is python, r or julia; COMMAND is split at blanks. The tables of languages that are not named stay as they are.
With --check nothing is written; differences are printed. Exits 1 if the document is not what comes out, if a language's
program gives wrong numbers, lacks an operation, or fails."""

import difflib
import json
import pathlib
import shlex
import subprocess
import sys

LANGUAGES = {"python": ("Python", "scipy.sparse"), "r": ("R", "Matrix"), "julia": ("Julia", "SparseArrays")}
START = """<!-- SPDX-License-Identifier: Apache-2.0. Made by tests/manners/table.py: edit tests/manners, not this file. -->
# Operations beside scipy.sparse, Matrix and SparseArrays

For each common operation on sparse matrices, the tables show the line for the language's own sparse matrices, the line for Tartan, and what both
give. `meson test -C build/release manners` runs each pair of lines on the same small data and compares the numbers.

| in the tables | means |
|---|---|
| sparse | a sparse matrix; Tartan's is in blocks |
| dense | an array, or several numbers |
| number | one number, truth value or text |
| refused | an exception that says why, and what to do instead |
| missing | the library does not have the operation |
"""


def operations(path):
    """[(section, [(id, what)])] of operations.txt."""
    sections = []
    for line in pathlib.Path(path).read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.endswith(":"):
            sections.append((line[:-1], []))
        else:
            name, what = (part.strip() for part in line.split("|"))
            sections[-1][1].append((name, what))
    return sections


def tried(command):
    done = subprocess.run(shlex.split(command), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} failed with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return {row["id"]: row for row in map(json.loads, filter(lambda line: line.startswith("{"), done.stdout.splitlines()))}


def code(line):
    return "`" + line.replace("|", "\\|").replace("\n", "; ") + "`" if line else ""


def table(language, sections, rows):
    name, peer = LANGUAGES[language]
    lines = [f"## {name}", "", f"| operation | {peer} | gives | Tartan | gives |", "|---|---|---|---|---|"]
    for section, entries in sections:
        lines.append(f"| **{section}** | | | | |")
        for key, what in entries:
            row = rows.get(key, {})
            if "not_here" in row:
                continue
            peer_line, line = row.get("peer", ""), row.get("tartan", "")
            result = row.get("result", "missing") if row.get("right", True) else "WRONG"
            same = "the same line" if line == peer_line and line else code(line)
            lines.append(f"| {what} | {code(peer_line)} | {row.get('peer_result', '') if peer_line else ''} | {same} | {result} |")
    absent = [row["not_here"] for row in rows.values() if "not_here" in row]
    lines += ["", "Operations are left out for these reasons: " + "; ".join(sorted(set(absent))) + "."] if absent else []
    return "\n".join(lines) + "\n"


def parts_of(text):
    """{language: its part of the document}."""
    found = {}
    for language, (name, _) in LANGUAGES.items():
        begin = text.find(f"\n## {name}\n")
        if begin >= 0:
            end = text.find("\n## ", begin + 1)
            found[language] = text[begin + 1 : len(text) if end < 0 else end]
    return found


def faults(language, sections, rows):
    known = {key for _, entries in sections for key, _ in entries}
    yield from (f"{language}: operation {key!r} is not in operations.txt" for key in rows if key not in known)
    yield from (f"{language}: nothing is said of {key!r}" for key in sorted(known - rows.keys()))
    yield from (f"{language}: {row['id']}: {row['tartan']} gives wrong numbers" for row in rows.values() if not row.get("right", True))


def main(arguments):
    check = arguments[:1] == ["--check"]
    path, document, *programs = arguments[1:] if check else arguments
    sections, document = operations(path), pathlib.Path(document)
    old = document.read_text() if document.exists() else ""
    parts, wrong = parts_of(old), []
    for language, _, command in (program.partition("=") for program in programs):
        rows = tried(command)
        parts[language] = table(language, sections, rows)
        wrong += faults(language, sections, rows)
    new = "\n".join([START, *(parts[language] for language in LANGUAGES if language in parts)])
    if not check:
        document.write_text(new)
    elif new != old:
        wrong += difflib.unified_diff(old.splitlines(), new.splitlines(), str(document), "what comes out", lineterm="", n=0)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
