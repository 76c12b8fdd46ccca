#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the constants of the headers as R code, from the output of `swig -xml`.

    swig -xml -Iswig -Ilib/include -o tartan.xml swig/tartan.i
    r_constants.py tartan.xml constants.R
"""

from swig_xml import generate


def write_constants(interface):
    lines = ["# Written by swig/r_constants.py from the C headers. Do not edit."]
    lines += [f"{name} <- {value}L" for name, value in interface.constants.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    generate("r_constants.py", "tartan.xml constants.R", write_constants)
