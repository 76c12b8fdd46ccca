# SPDX-License-Identifier: Apache-2.0
"""What an operation is: its arguments, options and facts."""

import dataclasses


@dataclasses.dataclass
class Argument:
    """An operand."""

    name: str
    use: str  # in, out, update
    optional: bool
    kind: str  # array, arrays, matrix, layout, mask, conv
    dtype: str  # T P O S L R F64 U8 I NONE
    shape: str
    help: str
    may_be: list = dataclasses.field(default_factory=list)
    stays: bool = False
    variable: bool = False
    computed: bool = False  # the shape, by SHAPES; `shape` are words for people
    old: list = dataclasses.field(default_factory=list)

    @property
    def written(self):
        return self.use != "in"


@dataclasses.dataclass
class Option:
    """An option of the text; with `positional`, an argument of its own: a NUMBER, SIZES, WINDOWS or, of whole numbers, the COUNT."""

    name: str
    kind: str  # real, whole, flag, word, sizes, windows
    default: str
    range: str
    help: str
    words: tuple = ()
    positional: bool = False
    computed: bool = False  # the default is what CHECK makes of the operands, and `default` says what
    most: int = 0  # of a COUNT; 0: any number
    base: bool = False  # what the first index is called; languages give it by themselves

    @property
    def limits(self):
        """(bound, the least or the most, whether numbers may equal it) for each bound of the range: "0 <= < 1" has ("0", "least", True) and
        ("1", "most", False)."""
        found, tokens = [], self.range.split()
        for i, token in enumerate(tokens):
            if token not in ("<", "<="):
                continue
            before = tokens[i - 1] if i > 0 and tokens[i - 1] not in ("<", "<=") else None
            after = tokens[i + 1] if i + 1 < len(tokens) and tokens[i + 1] not in ("<", "<=") else None
            if before is not None and (after is None or not found):
                found.append((before, "least", token == "<="))
            elif after is not None:
                found.append((after, "most", token == "<="))
        return found

    @property
    def limits_text(self):
        """The range in words, "at least 0 and below 1"; nothing of bounds far beyond what occurs, 2^40 and more."""
        words = {("least", True): "at least", ("least", False): "above", ("most", True): "at most", ("most", False): "below"}
        near = [(bound, words[which, equal]) for bound, which, equal in self.limits if abs(float(bound)) < 2**40]
        return " and ".join(f"{word} {bound}" for bound, word in near)


@dataclasses.dataclass
class Operand:
    """What an operation written by hand reads or writes."""

    name: str
    kind: str
    member: str
    written: str  # an expression of C
    length: str = ""
    named: bool = False  # `name` is a member


@dataclasses.dataclass
class Operation:
    name: str
    help: str
    where: str
    kind: str  # the struct of the backends; several operations may share one
    row: int = 0  # which of these it is
    converted: bool = False  # CHECK makes the struct of `kind` from one of its own
    runs: str = ""  # the function that runs it where there is no kind, or backends do not have it
    by_hand: bool = False
    wrapped: bool = False
    items: list = dataclasses.field(default_factory=list)  # arguments and options in order; OPTIONS is None
    operands: list = dataclasses.field(default_factory=list)
    keeps: list = dataclasses.field(default_factory=list)
    flops: str = ""
    formula: str = ""
    details: str = ""
    source: str = ""
    gradient: str = ""
    shapes: str = ""
    check: str = ""
    end: str = ""
    bench: str = ""

    @property
    def struct(self):
        """What its arguments are read into."""
        return self.name if self.converted or self.runs else self.kind

    @property
    def arguments(self):
        return [i for i in self.items if isinstance(i, Argument)]

    @property
    def options(self):
        return [i for i in self.items if isinstance(i, Option)]

    @property
    def count(self):
        """Of the arrays of lists; None: there are none."""
        return next((o for o in self.options if o.positional and o.kind == "whole"), None)

    @property
    def any_number(self):
        """Whether lists may have any number of arrays."""
        return self.count is not None and self.count.most == 0

    @property
    def text_options(self):
        return [i for i in self.options if not i.positional]

    @property
    def asked(self):
        """The options that languages have: they know by themselves from where they count, and how many arrays lists have."""
        return [o for o in self.options if not o.base and o is not self.count]

    @property
    def base(self):
        """Whether it has indices that count from 0 or 1."""
        return any(o.base for o in self.options)

    @property
    def inputs(self):
        return [a for a in self.arguments if a.use != "out"]

    @property
    def outputs(self):
        return [a for a in self.arguments if a.written]

    def __getitem__(self, name):
        for item in self.items:
            if item is not None and item.name == name:
                return item
        raise KeyError(name)

    def has(self, name):
        return any(item is not None and item.name == name for item in self.items)
