#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the constants of the headers as R code, from the output of `swig -xml`.

    swig -xml -Iswig -Ilib/include -o tartan.xml swig/tartan.i
    r_constants.py tartan.xml constants.R
"""
import sys

from swig_xml import Interface, Refused


def write_constants(interface):
    lines = ["# Written by swig/r_constants.py from the C headers. Do not edit."]
    lines += [f"{name} <- {value}L" for name, value in interface.constants.items()]
    return "\n".join(lines) + "\n"


def main(arguments):
    if len(arguments) != 2:
        sys.exit("usage: r_constants.py tartan.xml constants.R")
    try:
        text = write_constants(Interface(arguments[0]))
    except Refused as refused:
        sys.exit(f"r_constants.py: {refused}")
    with open(arguments[1], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
