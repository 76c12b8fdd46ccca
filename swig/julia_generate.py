#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the raw Julia layer from the output of `swig -xml`.

    swig -xml -Iswig -Ilib/include -o tartan.xml swig/lang/julia.i
    julia_generate.py tartan.xml raw.jl [probe.c]

Only declarations of headers (*.h) count. Each function becomes a Julia function of the same name; the name
and the type of a parameter tell what becomes of it:

    const T *x, int64_t nx       an Array{T} or nothing (NULL, 0)
    T *out_x, int64_t nout_x     an Array{T}, written
    const S *x                   a value of the struct S, or nothing
    S *x                         the same, where S has the feature tartan:descriptor
    H *h, const H *h             whatever converts to Ptr{H}; H is declared, but not defined
    const char *text             a string, or nothing
    S *out, T *out_x             returned
    H **out, char **out_text     returned; the text is copied and freed
    void *p, callbacks, scalars  as they are

A tartan_status that is returned is checked and thrown. Whatever is not understood ends the build: a wrapper
that guesses would read memory wrongly. probe.c prints sizes, offsets and values as the C compiler sees them,
for a test to compare.
"""
import re
import sys

from swig_xml import SCALARS, Interface, Refused, split_type

RESERVED = set("""baremodule begin break catch const continue do else elseif end export false finally for
    function global if import in isa let local macro module quote return struct true try type using
    while""".split())


class Function:
    """One C function: what Julia passes, what ccall gets, what comes back."""

    def __init__(self, interface, found):
        operators, _ = split_type(found["decl"])
        self.interface, self.name = interface, found["name"]
        try:
            self.read(found, operators)
        except Refused as refused:
            raise Refused(f"{self.name}: {refused}") from None

    def read(self, found, operators):
        self.types, self.values, self.arguments, self.before, self.results = [], [], [], [], []
        self.returned = ".".join(operators[1:] + [found["type"]])
        self.outputs, self.inputs, self.pointers = (
            [part.strip() for part in found.get("feature_tartan_" + key, "").split(",") if part.strip()]
            for key in ("out", "in", "pointer"))
        parms = [parm for parm in found.get("parms", []) if parm["type"] != "void"]
        for key in self.outputs + self.inputs + self.pointers:
            if key not in [parm.get("name") for parm in parms]:
                raise Refused(f"a feature names parameter '{key}', which there is not")
        i = 0
        while i < len(parms):
            i += self.read_parameter(parms[i], parms[i + 1] if i + 1 < len(parms) else {})

    def read_parameter(self, parm, following):
        """Takes one parameter, or an array and its length, and says how many."""
        text = parm["type"]
        if text.startswith("v("):
            raise Refused("variable arguments cannot be expressed")
        if "name" not in parm:
            raise Refused("a parameter without a name")
        name = parm["name"]
        try:
            kind = self.interface.julia_type(text)
            if following.get("name") == "n" + name and following["type"] == "int64_t":
                self.array(name, text, kind)
                return 2
            self.single(name, text, kind)
            return 1
        except Refused as refused:
            raise Refused(f"parameter '{name}' of type '{text}': {refused}") from None

    def pass_on(self, kind, value):
        self.types.append(kind)
        self.values.append(value)

    def argument(self, name, annotation=""):
        if name.startswith("c_") or name.startswith("address_of_"):
            raise Refused("the name is one of the generator's own")
        name = name + "_" if name in RESERVED else name
        self.arguments.append(name + annotation)
        return name

    def array(self, name, text, kind):
        element = kind[4:-1]
        is_input = text.startswith("p.q(const).")
        known = element in SCALARS.values() or element in self.interface.structs
        if not text.startswith("p.") or not known:
            raise Refused("an array of this type is not understood")
        if not is_input and not name.startswith("out_"):
            raise Refused("an array that is written must be named out_...")
        annotation = "::Union{Array{%s}, Nothing}" if is_input else "::Array{%s}"
        name = self.argument(name, annotation % element)
        self.pass_on(kind, f"c_pointer({name})" if is_input else name)
        self.pass_on("Int64", f"c_length({name})")

    def single(self, name, text, kind):
        is_constant = text.startswith("p.q(const).")
        pointee = kind[4:-1] if text.startswith("p.") and kind != "Ptr{Cvoid}" else None
        written = name in self.outputs or (re.match("out(_|$)", name) and name not in self.inputs)
        if pointee is None or pointee in self.interface.opaque or name in self.pointers:
            self.pass_on(kind, self.argument(name))
        elif is_constant and pointee == "Cchar":
            self.pass_on("Cstring", f"c_text({self.argument(name, '::Union{AbstractString, Nothing}')})")
        elif is_constant and pointee in self.interface.structs:
            self.pass_on(kind, f"c_pointer({self.argument(name, '::Union{%s, Nothing}' % pointee)})")
        elif not is_constant and written:
            self.output(name, kind, pointee)
        elif not is_constant and self.interface.structs.get(pointee, (None, False))[1]:
            self.pass_on(kind, f"Ref({self.argument(name, '::' + pointee)})")
        else:
            raise Refused("its direction is not expressed (a length n..., a name in out_, or a feature)")

    def output(self, name, kind, pointee):
        if pointee == "Ptr{Cchar}":
            self.results.append(f"c_taken({name}[])")
        elif pointee in SCALARS.values() or pointee in self.interface.structs \
                or pointee[4:-1] in self.interface.opaque:
            self.results.append(f"{name}[]")
        else:
            raise Refused("an output of this type is not understood")
        made = "Ref{%s}()" if pointee in self.interface.structs else "Ref(c_zero(%s))"
        self.before.append(f"{name} = {made % pointee}")
        self.pass_on(kind, name)

    def write(self):
        base = self.returned
        kind = "Cvoid" if base == "void" else self.interface.julia_type(base)
        status = base == "tartan_status"
        if not status and self.results and base != "void":
            raise Refused(f"{self.name}: it returns a value and has outputs")
        types = "".join(part + ", " for part in self.types).rstrip(" ")
        call = f"ccall({', '.join([f'address_of_{self.name}[]', kind, f'({types})'] + self.values)})"
        lines = [f"function {self.name}({', '.join(self.arguments)})"]
        lines += ["    " + line for line in self.before]
        if status:
            lines.append(f"    c_check({call})")
        elif base == "void":
            lines.append("    " + call)
        else:
            lines.append("    return " + (f"c_string({call})" if kind == "Ptr{Cchar}" else call))
        if status or base == "void":
            lines.append("    return " + (", ".join(self.results) or "nothing"))
        return lines + ["end", ""]


HEAD = '''# Written by swig/julia_generate.py from the C headers. Not to be edited.
"""
The C functions, one to one. Not exported, not for users: nothing here checks what memory means.
"""
module Raw

using ..Tartan: failure

c_pointer(x::Array) = x
c_pointer(x) = Ref(x)
c_pointer(::Nothing) = C_NULL
c_length(x::Array) = Int64(length(x))
c_length(::Nothing) = Int64(0)
c_text(x::AbstractString) = String(x)
c_text(::Nothing) = Cstring(C_NULL)
c_zero(T) = zero(T)
c_zero(::Type{Ptr{T}}) where {T} = Ptr{T}(C_NULL)
c_string(x::Ptr) = x == C_NULL ? nothing : unsafe_string(x)
c_check(status::Int32) = status == 0 ? nothing : throw(failure(status, tartan_last_error()))

function c_taken(x::Ptr{Cchar})
    x == C_NULL && return ""
    result = unsafe_string(x)
    tartan_text_free(x)
    return result
end
'''


def write_julia(interface):
    lines = [HEAD]
    lines += [f"const {name} = {value}" for name, value in interface.constants.items()]
    lines += [f'const {name} = "{value}"' for name, value in interface.texts.items()] + [""]
    lines += [f"mutable struct {name} end" for name in interface.opaque] + [""]
    for name, (fields, _) in interface.structs.items():
        lines += [f"struct {name}"] + [f"    {field}::{kind}" for field, kind in fields] + ["end", ""]
    functions = [Function(interface, found) for found in interface.functions]
    names = [function.name for function in functions]
    lines += [f"const address_of_{name} = Ref(C_NULL)" for name in names] + [""]
    lines += ["# Finds every function in the library; `find` maps a name to an address or throws.",
              "function bind_all(find)"]
    lines += [f"    address_of_{name}[] = find(:{name})" for name in names]
    lines += ["    return nothing", "end", ""]
    for function in functions:
        lines += function.write()
    return "\n".join(lines + ["end # module Raw"]) + "\n"


def write_probe(interface):
    lines = ["/* Written by swig/julia_generate.py: what the C compiler makes of the headers. */",
             "#include <stddef.h>", "#include <stdio.h>", '#include "tartan.h"', "", "int main(void)", "{"]
    for name, (fields, _) in interface.structs.items():
        lines.append(f'    printf("struct {name} %zu\\n", sizeof({name}));')
        lines += [f'    printf("field {name} {field} %zu %zu\\n", offsetof({name}, {field}), '
                  f"sizeof((({name} *)0)->{field}));" for field, _ in fields]
    lines += [f'    printf("constant {name} %lld\\n", (long long){name});' for name in interface.constants]
    return "\n".join(lines + ["    return 0;", "}"]) + "\n"


def main(arguments):
    if len(arguments) not in (2, 3):
        sys.exit("usage: julia_generate.py tartan.xml raw.jl [probe.c]")
    try:
        interface = Interface(arguments[0])
        outputs = [write_julia(interface), write_probe(interface)]
    except Refused as refused:
        sys.exit(f"julia_generate.py: {refused}")
    for path, text in zip(arguments[1:], outputs):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
