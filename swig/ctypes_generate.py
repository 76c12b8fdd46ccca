#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the library's declarations for Python's ctypes from the output of `swig -xml`.

    swig -xml -Iswig -Ilib/include -o tartan.xml swig/tartan.i
    ctypes_generate.py tartan.xml tartan_ctypes.py

The GPU benchmark uses them, since it runs where Tartan's Python package was not built. The module has the constants,
a class for each struct of C, and bind(library), which gives each function its arguments and its result. Handles,
callbacks and texts that must be freed are c_void_p.
"""

from swig_xml import Refused, generate

SCALARS = {"_Bool": "c_bool", "unsigned int": "c_uint", "size_t": "c_size_t"}  # others: int64_t is c_int64

HEAD = '''# Written by swig/ctypes_generate.py from the C headers. Not to be edited.
"""The C library by ctypes: constants, structs, and bind(library)."""
import ctypes
from ctypes import POINTER
'''


def ctypes_type(type_):
    if type_.kind == "pointer":
        target = type_.to
        if target.kind in ("void", "opaque"):
            return "ctypes.c_void_p"
        if target.kind == "scalar" and target.name == "char":
            return "ctypes.c_char_p" if type_.constant else "ctypes.c_void_p"
        return f"POINTER({ctypes_type(target)})"
    if type_.kind == "array":
        return f"{ctypes_type(type_.to)} * {type_.count}"
    if type_.kind == "scalar":
        return "ctypes." + SCALARS.get(type_.name, "c_" + type_.name.replace("_t", ""))
    return {"void": "None", "enum": "ctypes.c_int32", "callback": "ctypes.c_void_p"}.get(type_.kind, type_.name)


def prototype(interface, function):
    try:
        arguments = [ctypes_type(interface.type_of(parameter.type)) for parameter in function.parameters]
        return f'    "{function.name}": ({ctypes_type(interface.type_of(function.result))}, [{", ".join(arguments)}]),'
    except Refused as refused:
        raise Refused(f"{function.name}: {refused}") from None


def write(interface):
    lines = [HEAD] + [f"{name} = {value}" for name, value in interface.constants.items()]
    lines += [f"{name} = {value!r}" for name, value in interface.texts.items()]
    for struct in interface.structs.values():
        lines += ["", "", f"class {struct.name}(ctypes.Structure):", "    _fields_ = ["]
        lines += [f'        ("{name}", {ctypes_type(type_)}),' for name, type_ in struct.fields] + ["    ]"]
    lines += ["", "", "FUNCTIONS = {  # name: (result, arguments)"]
    lines += [prototype(interface, function) for function in interface.functions]
    lines += ["}", "", "", "def bind(library):", "    for name, (result, arguments) in FUNCTIONS.items():",
              "        function = getattr(library, name)",
              "        function.restype, function.argtypes = result, arguments"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    generate("ctypes_generate.py", "tartan.xml tartan_ctypes.py", write)
