# SPDX-License-Identifier: Apache-2.0
"""The notation of .def files: entries that read like calls in C. schema.py explains what they mean."""

import dataclasses
import re


class SchemaError(Exception):
    pass


@dataclasses.dataclass
class Call:
    name: str
    arguments: list  # of Call, str, Text or tuple
    where: str


class Text(str):
    """A string literal, unlike a word."""


TOKEN = re.compile(r'\s+|#(?:[^\n\\]|\\.)*|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z_][\w.]*|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign>.)', re.S)


def tokens_of(path):
    """(kind, token, position) without blanks, comments and lines of the preprocessor."""
    source = path.read_text(encoding="utf-8")
    for match in TOKEN.finditer(source):
        if match.lastgroup is not None:
            yield match.lastgroup, match.group(), match.start()
    yield "end", "", len(source)


# Items whose arguments are expressions of C, kept as they are written.
EXPRESSIONS = {"FLOPS": (0,), "READS": (2, 3), "WRITES": (2, 3), "WRITES_IF": (2, 3), "NAMED": (0,), "POINT1": (2, 3), "POINT1_WITH": (3, 4), "POINT2": (2, 3, 4)}


class Reader:
    def __init__(self, path):
        self.path, self.source = path, path.read_text(encoding="utf-8")
        self.tokens = list(tokens_of(path))
        self.at = 0

    def where(self):
        return f"{self.path.name}:{self.source.count(chr(10), 0, self.tokens[self.at][2]) + 1}"

    def fail(self, text):
        raise SchemaError(f"{self.where()}: {text}")

    def take(self, sign=None):
        kind, token, _ = self.tokens[self.at]
        if sign is not None and token != sign:
            self.fail(f"'{token}', expected '{sign}'")
        self.at += 1
        return kind, token

    def peek(self):
        return self.tokens[self.at][1]

    def expression(self):
        """The source up to the comma or bracket that ends it."""
        begin, depth = self.tokens[self.at][2], 0
        while depth > 0 or self.peek() not in (",", ")"):
            if self.tokens[self.at][0] == "end":
                self.fail("the file ends in an expression")
            depth += {"(": 1, ")": -1}.get(self.peek(), 0)
            self.at += 1
        return " ".join(self.source[begin : self.tokens[self.at][2]].split())

    def call(self):
        where = self.where()
        kind, name = self.take()
        if kind != "word":
            self.fail(f"'{name}', expected the name of an entry")
        self.take("(")
        arguments = []
        while self.peek() != ")":
            if len(arguments) in EXPRESSIONS.get(name, ()):
                arguments.append(self.expression())
            else:
                arguments.append(self.argument())
            if self.peek() == ",":
                self.take()
        self.take(")")
        return Call(name, arguments, where)

    def argument(self):
        kind, token = self.tokens[self.at][:2]
        if kind == "text":
            text = ""
            while self.tokens[self.at][0] == "text":
                text += self.take()[1][1:-1].replace('\\"', '"')
            return Text(text)
        if token == "(":
            self.take()
            words = []
            while self.peek() != ")":
                words.append(self.argument())
                if self.peek() == ",":
                    self.take()
            self.take(")")
            return tuple(words)
        if kind != "word":
            self.fail(f"'{token}' is no argument")
        if self.tokens[self.at + 1][1] == "(":
            return self.call()
        return self.take()[1]

    def calls(self):
        while self.tokens[self.at][0] != "end":
            yield self.call()
