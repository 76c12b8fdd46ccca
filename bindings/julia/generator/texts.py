# SPDX-License-Identifier: Apache-2.0
"""Names and words of the schema in Julia, and lines of code and text of a limited width."""

import re
import textwrap

WIDTH = 128

# What the package calls otherwise than the schema, so that a word means the same in all of its functions.
RENAMED = {"block_mask": "mask", "in_size": "size"}
# Options that are positions, which count from 1.
POSITIONS = {"causal_from"}

# Words of the schema's texts in Julia.
WORDS = [
    (r"\bbf16\b", "`BFloat16`"),
    (r"\bf(64|32|16)\b", r"`Float\1`"),
    (r"\b([a-z_]+)=1\b", r"`\1 = true`"),
    (r"\balong the last axis\b", "along the first dimension"),
    (r"\balong (its|the) first axis\b", r"along \1 last dimension"),
    (r"\bmissing on the left\b", "missing at the end"),
    (r" ?\(tartan_conv_edge_classes\)", " ([`edge_classes`](@ref))"),
    (r" \(UNSUPPORTED\)", ""),
    (r"\ba row for each edge class\b", "a column for each edge class"),
    (r"(?<![\w)])([-+]?)infinity\b", r"\1Inf"),
]
CLASSES = {"array": "Dense", "matrix": "Blocks", "layout": "BlockLayout", "mask": "BlockMask", "conv": "BlockConv"}


def in_julia(text, names=()):
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    for old, new in RENAMED.items():
        text = re.sub(rf"\b{old}\b", f"`{new}`", text)
    return re.sub(r"`(\w+)`", lambda m: f"[`{names[m.group(1)].path}`](@ref)" if m.group(1) in names else m.group(0), text)


def formula_of(op):
    """What follows the help: formulas are in C's words, within backticks."""
    return ": `" + re.sub(r"\b([a-z_]+)=1\b", r"\1 = true", op.formula) + "`" if op.formula else ""


def sentence(text):
    return text if text.endswith(".") else text + "."


def escaped(text):
    return re.sub(r'(["\\$])', r"\\\1", text)


def wrapped(text, first="", rest=""):
    # A sign at the beginning of a line would make it an item of a list, so it stays with the word before.
    held = re.sub(r" (?=[-+*] )", "\xa0", text)
    lines = textwrap.wrap(held, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def broken(before, parts, after, indent=None):
    """`before`, `parts` with commas between them, and `after`, in lines that begin below the first part or after `indent`."""
    lines, line = [], before
    blanks = " " * (len(before) if indent is None else indent)
    for i, part in enumerate(parts):
        end = after if i + 1 == len(parts) else ", "
        if len(line + part + end.rstrip()) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = blanks
        line += part + end
    return lines + [line] if parts else [before + after]


def tuple_of(parts):
    parts = list(parts)
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
