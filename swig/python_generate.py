#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the type stub of Python's raw layer from the output of `swig -xml`.

    swig -xml -Iswig -Ilib/include -o python.xml swig/lang/python.i
    python_generate.py python.xml glue.pyi _raw.pyi

The types come from lang/python.i: beside the typemaps that convert stand typemaps with two methods that SWIG itself
does not use. `hint` is the type of an argument, or, for an output that is no argument, "-> " and the type of the
result ("->" alone: an argument that is always the same). `hintout` is the type of a returned value. glue.pyi holds what the C glue adds by hand. A function with an
argument or a result without a hint ends the build.
"""
import keyword
import sys

from swig_xml import Interface, Parameter, Refused, Typemaps


def stub(found, typemaps):
    """The stub of one function."""
    arguments, results = [], []
    parms = list(found.parameters)
    while parms:
        hint, taken = typemaps.find("hint", parms)
        if hint.startswith("->"):
            results += [hint[2:].strip()] if hint[2:].strip() else []
        else:
            name = parms[0].name
            arguments.append(f"{name}{'_' if keyword.iskeyword(name) else ''}: {hint}")
        del parms[:taken]
    hint, _ = typemaps.find("hintout", [Parameter(found.result, None)])
    if len(results) > 1 or (results and hint != "None"):
        raise Refused("more than one result")
    slash = ", /" if arguments else ""
    return f"def {found.name}({', '.join(arguments)}{slash}) -> {(results or [hint])[0]}: ..."


def write(interface, typemaps, glue):
    lines = [glue.rstrip(), "", "# Below: written by swig/python_generate.py from the C headers."]
    for found in interface.functions:
        try:
            lines.append(stub(found, typemaps))
        except Refused as refused:
            raise Refused(f"{found.name}: {refused}") from None
    lines += [""] + [f"{name}: int" for name in interface.constants] + [f"{name}: str" for name in interface.texts]
    return "\n".join(lines) + "\n"


def main(arguments):
    if len(arguments) != 3:
        sys.exit("usage: python_generate.py python.xml glue.pyi _raw.pyi")
    with open(arguments[1], encoding="utf-8") as file:
        glue = file.read()
    try:
        text = write(Interface(arguments[0]), Typemaps(arguments[0]), glue)
    except Refused as refused:
        sys.exit(f"python_generate.py: {refused}")
    with open(arguments[2], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
