# SPDX-License-Identifier: Apache-2.0
"""Reads the declarations of C headers from the output of `swig -xml`, for the generators beside this file.

    interface = Interface("tartan.xml")
    interface.constants              macros and enumerators of integers {name: value}
    interface.texts                  macros of strings {name: text}
    interface.enums                  {name: {enumerator: value}}
    interface.structs                {name: Struct}, each field with its type
    interface.opaque                 the names of structs that are declared but not defined: handles
    interface.callbacks              the names of typedefs of function pointers
    interface.functions              [Function], each with its parameters and its result
    interface.type_of("p.q(const).char")    what a type of SWIG's notation means: a Type

    typemaps = Typemaps("tartan.xml")       the typemaps of a language file, by method and pattern

Refused is raised for whatever is not understood: bit-fields, unions, variable arguments, long double, complex
and unknown types among it.
"""
import ast
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import NamedTuple, Optional

SCALARS = {
    "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t",
    "float", "double", "bool", "_Bool", "int", "unsigned int", "char",
}
# Nodes that say nothing about C.
PASSED_OVER = {"typemap", "typemapcopy", "apply", "insert", "fragment", "attributelist"}


class Refused(Exception):
    """A declaration that has no safe translation."""


@dataclass(frozen=True)
class Type:
    """A type of C. `name` is that of a scalar, enum, struct, handle or callback; `to` is what a pointer points to or
    what an array holds `count` of; `constant` says that a pointer's target is const."""
    kind: str  # "void", "scalar", "enum", "struct", "opaque", "callback", "pointer" or "array"
    name: str = ""
    to: Optional["Type"] = None
    count: int = 0
    constant: bool = False

    def is_pointer_to(self, kind, *names):
        return self.kind == "pointer" and self.to.kind == kind and (not names or self.to.name in names)


class Parameter(NamedTuple):
    type: str  # in SWIG's notation
    name: Optional[str]


@dataclass(frozen=True)
class Struct:
    name: str
    fields: list  # [(name, Type)]
    features: dict


@dataclass(frozen=True)
class Function:
    name: str
    parameters: list  # [Parameter]
    result: str       # in SWIG's notation
    features: dict    # those of the .i files: {"tartan_out": "options"}


def attributes(node):
    """The attributes of a node; those of its parameters under "parms"."""
    result = {}
    for group in node.findall("attributelist"):
        for item in group.findall("attribute"):
            result[item.get("name")] = item.get("value")
        for parms in group.findall("parmlist"):
            result["parms"] = [Parameter(found["type"], found.get("name")) for found in map(attributes, parms.findall("parm"))]
    return result


def features_of(found):
    return {key[len("feature_"):]: value for key, value in found.items() if key.startswith("feature_")}


def split_type(text):
    """"p.f(int,p.void).q(const).char" -> (["p", "f(int,p.void)", "q(const)"], "char")."""
    operators, depth, current = [], 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "." and depth == 0:
            operators.append(current)
            current = ""
        else:
            current += character
    return operators, current


def constant_value(text, known):
    """The value of an integer expression of C in the names `known`."""
    def value(node):
        if isinstance(node, ast.Expression):
            return value(node.body)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        if isinstance(node, ast.UnaryOp) and type(node.op) in unary:
            return unary[type(node.op)](value(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in binary:
            return binary[type(node.op)](value(node.left), value(node.right))
        raise Refused(f"constant expression '{text}' is not understood")

    unary = {ast.USub: lambda a: -a, ast.UAdd: lambda a: a, ast.Invert: lambda a: ~a}
    binary = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
              ast.LShift: lambda a, b: a << b, ast.RShift: lambda a, b: a >> b,
              ast.BitOr: lambda a, b: a | b, ast.BitAnd: lambda a, b: a & b, ast.BitXor: lambda a, b: a ^ b}
    plain = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text.strip())
    plain = re.sub(r"\b0([0-7]+)\b", r"0o\1", plain)  # octal
    try:
        return value(ast.parse(plain, mode="eval"))
    except (SyntaxError, ValueError) as error:
        raise Refused(f"constant expression '{text}' is not understood") from error


class Interface:
    """The declarations of the headers, in their order."""

    def __init__(self, xml):
        self.constants = {}  # name: int
        self.texts = {}      # name: str
        self.enums = {}      # name: {enumerator: value}
        self.structs = {}    # name: Struct
        self.opaque = {}     # names of handles, in order
        self.callbacks = set()
        self.functions = []
        self.read(ElementTree.parse(xml).getroot(), inside_header=False)
        self.opaque = {name: None for name in self.opaque if name not in self.structs}

    def read(self, node, inside_header):
        for child in node:
            if child.tag in PASSED_OVER:
                continue
            if child.tag == "include":
                self.read(child, attributes(child)["name"].endswith(".h"))
            elif inside_header:
                found = attributes(child)
                if found.get("feature_ignore") != "1":
                    self.declare(child, found)

    def declare(self, node, found):
        name = found.get("name", "(unnamed)")
        try:
            reader = getattr(self, "read_" + node.tag, None)
            if reader is None:
                raise Refused(f"declaration of kind '{node.tag}' is not understood")
            reader(node, found)
        except Refused as refused:
            raise Refused(f"{name}: {refused}") from None

    def read_constant(self, node, found):
        if found["type"] == "p.q(const).char" or found["type"] == "p.char":
            self.texts[found["name"]] = found["value"].strip('"')
        elif found["type"] in ("int", "unsigned int", "long", "unsigned long"):
            self.constants[found["name"]] = constant_value(found["value"], self.constants)
        else:
            raise Refused(f"constant of type '{found['type']}' is not understood")

    def read_enum(self, node, found):
        value, values = -1, {}
        for item in map(attributes, node.findall("enumitem")):
            text = item.get("enumvalue") or item.get("enumvalueex")
            if item.get("type") == "char" and text:
                value = ord(text)
            else:
                value = value + 1 if text is None else constant_value(text, self.constants)
            if not -2**31 <= value < 2**31:
                raise Refused(f"{item['name']} = {value} does not fit in 32 bits")
            self.constants[item["name"]] = values[item["name"]] = value
        self.enums.update({found[key]: values for key in ("name", "tdname") if found.get(key)})

    def read_classforward(self, node, found):
        self.opaque[found["name"]] = None

    def read_class(self, node, found):
        if found.get("kind") != "struct":
            raise Refused(f"a {found.get('kind')} cannot be expressed")
        name = found.get("tdname") or found["name"]
        if found.get("unnamed") and not found.get("tdname"):
            raise Refused("an unnamed struct cannot be expressed")
        fields = []
        for child in node:
            if child.tag in PASSED_OVER:
                continue
            field = attributes(child)
            if child.tag != "cdecl" or field.get("kind") != "variable":
                raise Refused(f"member '{field.get('name')}' of kind '{child.tag}' is not understood")
            if "bitfield" in field:
                raise Refused(f"bit-field '{field['name']}' cannot be expressed")
            fields.append((field["name"], self.type_of(field["decl"] + field["type"], inside_struct=True)))
        self.structs[name] = Struct(name, fields, features_of(found))

    def read_cdecl(self, node, found):
        kind, storage = found.get("kind"), found.get("storage")
        operators, _ = split_type(found["decl"])
        if storage == "typedef":
            base = found["type"]
            if not operators and base.startswith("enum ") and base[5:] in self.enums:
                self.enums[found["name"]] = self.enums[base[5:]]
            elif not operators and base.startswith("struct "):
                self.opaque[found["name"]] = None
            elif operators[:1] == ["p"] and operators[1:] and operators[1].startswith("f("):
                self.callback_types(operators[1])
                self.callbacks.add(found["name"])
            else:
                raise Refused(f"typedef of '{found['decl']}{base}' is not understood")
        elif kind == "function" and storage == "static":
            pass  # inline: not a symbol of the library
        elif kind == "function":
            parameters = [parm for parm in found.get("parms", []) if parm.type != "void"]
            if any(parm.type.startswith("v(") for parm in parameters):
                raise Refused("variable arguments cannot be expressed")
            result = ".".join(operators[1:] + [found["type"]])
            self.functions.append(Function(found["name"], parameters, result, features_of(found)))
        else:
            raise Refused(f"declaration of kind '{kind}' is not understood")

    def callback_types(self, operator):
        """Refuses a callback whose parameters could not be passed."""
        for part in re.split(r",(?![^(]*\))", operator[2:-1]):
            self.type_of(part)

    def type_of(self, text, inside_struct=False):
        """The Type that a type in SWIG's notation means. Arrays exist in structs alone."""
        operators, base = split_type(text)
        constant = operators[1:2] == ["q(const)"]
        operators = [operator for operator in operators if operator != "q(const)"]
        if not operators:
            return self.named_type(base)
        first, rest = operators[0], ".".join(operators[1:] + [base])
        if first == "p":
            if operators[1:] and operators[1].startswith("f("):
                self.callback_types(operators[1])
                return Type("callback")
            return Type("pointer", to=self.type_of(rest), constant=constant)
        if first.startswith("a(") and inside_struct:
            return Type("array", to=self.type_of(rest), count=constant_value(first[2:-1], self.constants))
        raise Refused(f"type '{text}' is not understood")

    def named_type(self, base):
        name = re.sub(r"^(struct|enum) ", "", base)
        if base == "void":
            return Type("void")
        for kind, names in (("scalar", SCALARS), ("enum", self.enums), ("struct", self.structs), ("opaque", self.opaque),
                            ("callback", self.callbacks)):
            if name in names:
                return Type(kind, name)
        raise Refused(f"type '{base}' is not known")


class Typemaps:
    """The typemaps of a language file, for methods of our own: swig -xml applies none, but shows them all."""

    def __init__(self, xml):
        self.texts = {}  # (method, ((type, name), ...)): text
        self.read(ElementTree.parse(xml).getroot())

    def read(self, node):
        for child in node:
            if child.tag == "typemap":
                found = attributes(child)
                for pattern in self.patterns(child):
                    self.texts[found["method"], pattern] = found.get("code", "").strip()
            elif child.tag == "apply":
                (source,) = self.patterns_of(child)
                for (method, pattern), text in list(self.texts.items()):
                    if pattern == source:
                        self.texts.update({(method, target): text for target in self.patterns(child)})
            else:
                self.read(child)

    def patterns(self, node):
        return [pattern for item in node.findall("typemapitem") for pattern in self.patterns_of(item)]

    @staticmethod
    def patterns_of(node):
        return [tuple(attributes(node).get("parms", []))]

    def find(self, method, parms):
        """The text for the first of `parms`, or the first few, and how many it stands for. As SWIG looks them up: the
        longest pattern first, names before types alone."""
        whole = tuple(parms)
        for length in range(len(whole), 0, -1):
            for pattern in (whole[:length], tuple((kind, None) for kind, _ in whole[:length])):
                if (method, pattern) in self.texts:
                    return self.texts[method, pattern], length
        kind, name = whole[0]
        raise Refused(f"no typemap '{method}' for '{name or 'the result'}' of type '{kind}'")


def generate(script, files, *writers):
    """The main function of a generator: each writer makes the text of a file from an interface. `files` names the interface and the files,
    of which the last may be left out."""
    arguments = sys.argv[1:]
    if not 2 <= len(arguments) <= 1 + len(writers):
        sys.exit(f"usage: {script} {files}")
    try:
        interface = Interface(arguments[0])
        texts = [write(interface) for write in writers]
    except Refused as refused:
        sys.exit(f"{script}: {refused}")
    for path, text in zip(arguments[1:], texts):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
