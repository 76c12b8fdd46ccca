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

from swig_xml import Interface, Refused

RESERVED = set("""baremodule begin break catch const continue do else elseif end export false finally for
    function global if import in isa let local macro module quote return struct true try type using
    while""".split())


SCALARS = {
    "int8_t": "Int8", "int16_t": "Int16", "int32_t": "Int32", "int64_t": "Int64",
    "uint8_t": "UInt8", "uint16_t": "UInt16", "uint32_t": "UInt32", "uint64_t": "UInt64",
    "float": "Float32", "double": "Float64", "size_t": "Csize_t", "bool": "Bool", "_Bool": "Bool",
    "int": "Cint", "unsigned int": "Cuint", "char": "Cchar",
}


def julia_type(type_):
    """The type of ccall and of fields for a type of C."""
    if type_.kind == "pointer":
        return "Ptr{" + julia_type(type_.to) + "}"
    if type_.kind == "array":
        return "NTuple{%d, %s}" % (type_.count, julia_type(type_.to))
    if type_.kind == "scalar":
        return SCALARS[type_.name]
    return {"void": "Cvoid", "enum": "Int32", "callback": "Ptr{Cvoid}"}.get(type_.kind, type_.name)


class Function:
    """One C function: what Julia passes, what ccall gets, what comes back."""

    def __init__(self, interface, found):
        self.interface, self.name = interface, found.name
        try:
            self.read(found)
        except Refused as refused:
            raise Refused(f"{self.name}: {refused}") from None

    def read(self, found):
        self.types, self.values, self.arguments, self.before, self.results = [], [], [], [], []
        self.returned = found.result
        self.outputs, self.inputs, self.pointers = (
            [part.strip() for part in found.features.get("tartan_" + key, "").split(",") if part.strip()]
            for key in ("out", "in", "pointer"))
        for key in self.outputs + self.inputs + self.pointers:
            if key not in [parm.name for parm in found.parameters]:
                raise Refused(f"a feature names parameter '{key}', which there is not")
        parms = list(found.parameters)
        while parms:
            del parms[:self.read_parameter(*parms[:2])]

    def read_parameter(self, parm, following=None):
        """Takes one parameter, or an array and its length, and says how many."""
        if parm.name is None:
            raise Refused("a parameter without a name")
        try:
            type_ = self.interface.type_of(parm.type)
            if following is not None and following == ("int64_t", "n" + parm.name):
                self.array(parm.name, type_)
                return 2
            self.single(parm.name, type_)
            return 1
        except Refused as refused:
            raise Refused(f"parameter '{parm.name}' of type '{parm.type}': {refused}") from None

    def pass_on(self, kind, value):
        self.types.append(kind)
        self.values.append(value)

    def argument(self, name, annotation=""):
        if name.startswith("c_") or name.startswith("address_of_"):
            raise Refused("the name is one of the generator's own")
        name = name + "_" if name in RESERVED else name
        self.arguments.append(name + annotation)
        return name

    def array(self, name, type_):
        if not (type_.is_pointer_to("scalar") or type_.is_pointer_to("struct")):
            raise Refused("an array of this type is not understood")
        if not type_.constant and not name.startswith("out_"):
            raise Refused("an array that is written must be named out_...")
        annotation = "::Union{Array{%s}, Nothing}" if type_.constant else "::Array{%s}"
        name = self.argument(name, annotation % julia_type(type_.to))
        self.pass_on(julia_type(type_), f"c_pointer({name})" if type_.constant else name)
        self.pass_on("Int64", f"c_length({name})")

    def single(self, name, type_):
        kind, target = julia_type(type_), type_.to
        written = name in self.outputs or (re.match("out(_|$)", name) and name not in self.inputs)
        if type_.kind != "pointer" or target.kind in ("void", "opaque") or name in self.pointers:
            self.pass_on(kind, self.argument(name))
        elif type_.constant and target.name == "char":
            self.pass_on("Cstring", f"c_text({self.argument(name, '::Union{AbstractString, Nothing}')})")
        elif type_.constant and target.kind == "struct":
            self.pass_on(kind, f"c_pointer({self.argument(name, '::Union{%s, Nothing}' % target.name)})")
        elif not type_.constant and written:
            self.output(name, kind, target)
        elif target.kind == "struct" and "tartan_descriptor" in self.interface.structs[target.name].features:
            self.pass_on(kind, f"Ref({self.argument(name, '::' + target.name)})")
        else:
            raise Refused("its direction is not expressed (a length n..., a name in out_, or a feature)")

    def output(self, name, kind, target):
        if target.is_pointer_to("scalar", "char"):
            self.results.append(f"c_taken({name}[])")
        elif target.kind in ("scalar", "struct") or target.is_pointer_to("opaque"):
            self.results.append(f"{name}[]")
        else:
            raise Refused("an output of this type is not understood")
        made = "Ref{%s}()" if target.kind == "struct" else "Ref(c_zero(%s))"
        self.before.append(f"{name} = {made % julia_type(target)}")
        self.pass_on(kind, name)

    def write(self):
        status = self.returned == "tartan_status"
        returned = self.interface.type_of(self.returned)
        if self.results and not status and returned.kind != "void":
            raise Refused(f"{self.name}: it returns a value and has outputs")
        types = "".join(part + ", " for part in self.types).rstrip(" ")
        call = f"ccall({', '.join([f'address_of_{self.name}[]', julia_type(returned), f'({types})'] + self.values)})"
        lines = [f"function {self.name}({', '.join(self.arguments)})"]
        lines += ["    " + line for line in self.before]
        if status:
            lines.append(f"    c_check({call})")
        elif returned.kind == "void":
            lines.append("    " + call)
        else:
            lines.append("    return " + (f"c_string({call})" if returned.is_pointer_to("scalar", "char") else call))
        if status or returned.kind == "void":
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
    for name, struct in interface.structs.items():
        lines += [f"struct {name}"] + [f"    {field}::{julia_type(type_)}" for field, type_ in struct.fields] + ["end", ""]
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
    for name, struct in interface.structs.items():
        lines.append(f'    printf("struct {name} %zu\\n", sizeof({name}));')
        lines += [f'    printf("field {name} {field} %zu %zu\\n", offsetof({name}, {field}), '
                  f"sizeof((({name} *)0)->{field}));" for field, _ in struct.fields]
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
