#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the raw Julia layer from the output of `swig -xml`.

    swig -xml -Iswig -Ilib/include -o tartan.xml swig/lang/julia.i
    julia_generate.py tartan.xml raw.jl [probe.c]

Only declarations of headers (*.h) count. Each function becomes a Julia function of the same name; the name
and the type of a parameter tell what becomes of it:

    const T *x, int64_t nx       an Array{T}, a tuple of T, or nothing (NULL, 0)
    T *out_x, int64_t nout_x     an Array{T} or a Ref{T}, written
    const S *x, int64_t nx       a tuple of what stands for the struct S
    const H *const *x, int64_t nx   an array of what has a handle of H
    void *const *x, int64_t nx   a tuple of operands of any kind: what has a descriptor or a handle (see c_descriptor), or nothing
    const S *x                   what stands for the struct S (see c_value), or nothing
    S *x                         the same, where S has the feature tartan:descriptor
    H *h, const H *h             what has a handle of H (see c_handle); H is declared, but not defined
    const char *text             a string, or nothing
    S *out, T *out_x             returned
    H **out, char **out_text     returned; the text is copied and freed
    void *p, callbacks, scalars  as they are

A call has four steps: convert every argument, which may throw; hold what can be closed (see c_enter); call C; let go.
Between the second step and the last nothing throws, so nothing stays held. A tartan_status that is returned is checked
and thrown; after TARTAN_ERR_MEMORY the call is tried once more, when Julia has collected its garbage. Whatever is not
understood ends the build: a wrapper that guesses would read memory wrongly. probe.c prints sizes, offsets and values
as the C compiler sees them, for a test to compare.
"""
import re

from swig_xml import Refused, generate

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
        self.arguments, self.before, self.handles, self.held, self.kept = [], [], [], [], []
        self.types, self.values, self.outputs, self.results = [], [], [], []
        self.returned = found.result
        self.written, self.inputs, self.pointers = (
            [part.strip() for part in found.features.get("tartan_" + key, "").split(",") if part.strip()]
            for key in ("out", "in", "pointer"))
        for key in self.written + self.inputs + self.pointers:
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
            if following is not None and following == ("int64_t", "n" + parm.name) and parm.name not in self.pointers:
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
        if re.match("c_|raw_|owner_|addresses?_", name):
            raise Refused("the name is one of the generator's own")
        name = name + "_" if name in RESERVED else name
        self.arguments.append(name + annotation)
        return name

    def array(self, name, type_):
        if type_.constant and type_.is_pointer_to("pointer") and type_.to.to.kind == "void":
            return self.operands(name)
        if type_.constant and type_.is_pointer_to("pointer") and type_.to.to.kind == "opaque":
            return self.handle_list(name, type_.to.to.name)
        if not (type_.is_pointer_to("scalar") or type_.is_pointer_to("struct")):
            raise Refused("an array of this type is not understood")
        if not type_.constant and not name.startswith("out_"):
            raise Refused("an array that is written must be named out_...")
        element = julia_type(type_.to)
        if type_.to.kind == "struct":
            if not type_.constant:
                raise Refused("an array of structs that is written is not understood")
            name = self.argument(name, "::Tuple")
            self.before.append(f"raw_{name} = c_list({element}, {name})")
            self.hold_owner(name)
        else:
            annotation = "::Union{Array{%s}, Tuple{Vararg{%s}}, Nothing}" if type_.constant else "::Union{Array{%s}, Ref{%s}}"
            name = self.argument(name, annotation % (element, element))
            self.before.append(f"raw_{name} = c_array({name})")
        self.pass_on("Ptr{Cvoid}", f"raw_{name}")
        self.pass_on("Int64", f"c_length({name})")

    def operands(self, name):
        name = self.argument(name, "::Tuple")
        self.before.append(f"raw_{name} = Ref(c_descriptors({name}))")
        self.kept.append("raw_" + name)
        self.hold_owner(name)
        self.pass_on("Ptr{Cvoid}", f"Ref(c_pointers({name}, c_place(raw_{name})))")
        self.pass_on("Int64", f"length({name})")

    def handle_list(self, name, target):
        name = self.argument(name, "::Vector")
        self.handles += [f"addresses_{name} = map(c_address, raw_{name}.list)", f"raw_{name} = c_handle_list({target}, {name})"]
        self.held.append("raw_" + name)
        self.kept += [name, "addresses_" + name]
        self.pass_on("Ptr{Cvoid}", f"addresses_{name}")
        self.pass_on("Int64", f"c_length({name})")

    def single(self, name, type_):
        kind, target = julia_type(type_), type_.to
        written = name in self.written or (re.match("out(_|$)", name) and name not in self.inputs)
        if type_.kind != "pointer" or target.kind == "void" or name in self.pointers:
            name = self.argument(name)
            self.before.append(f"{name} = convert({kind}, {name})")
            self.pass_on(kind, name)
        elif target.kind == "opaque":
            name = self.argument(name)
            self.handles.append(f"raw_{name} = c_handle({target.name}, {name})")
            self.held.append("raw_" + name)
            self.kept.append(name)
            self.pass_on(kind, f"c_address(raw_{name})")
        elif type_.constant and target.name == "char":
            name = self.argument(name, "::Union{AbstractString, Nothing}")
            self.before.append(f"{name} = c_text({name})")
            self.pass_on("Cstring", name)
        elif target.kind == "struct" and (type_.constant or not written):
            if not type_.constant and "tartan_descriptor" not in self.interface.structs[target.name].features:
                raise Refused("its direction is not expressed (a name in out_, or a feature)")
            name = self.argument(name)
            self.before.append(f"raw_{name} = c_struct({target.name}, {name})")
            self.hold_owner(name)
            self.pass_on(kind, f"raw_{name}")
        elif not type_.constant and written:
            self.output(name, kind, target)
        else:
            raise Refused("its direction is not expressed (a length n..., a name in out_, or a feature)")

    def hold_owner(self, name):
        """What stands for a struct has an owner. The rest of it is on the stack, as long as nothing else looks at it."""
        self.before.append(f"owner_{name} = c_owner({name})")
        self.held.append("owner_" + name)
        self.kept.append("owner_" + name)

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
        if returned.is_pointer_to("scalar", "char"):
            call = f"c_string({call})"
        if self.kept:
            call = f"GC.@preserve {' '.join(self.kept)} {call}"
        held = ", ".join(self.held)
        # A context is the first parameter; where it is nothing, one is taken that is idle, when nothing else can throw.
        lines = self.before + self.handles[::-1]
        if held:
            lines.append(f"c_enter({held}) || throw(c_closed({held}))")
        if status:
            lines += ["c_retry = true", f"while (c_result = {call}) == TARTAN_ERR_MEMORY && c_retry",
                      "    c_retry = false", "    GC.gc()", "end"]
        else:
            lines.append("c_result = " + call)
        if held:
            lines.append(f"c_leave({held})")
        if status:
            lines.append("c_check(c_result)")
        if status or returned.kind == "void":
            lines.append("return " + (", ".join(self.results) or "nothing"))
        else:
            lines.append("return c_result")
        # Inlined, what stands for a struct stays on the stack.
        inline = "@inline " if set(self.held) & set(self.kept) else ""
        return [f"{inline}function {self.name}({', '.join(self.arguments)})"] + ["    " + line for line in lines] + ["end", ""]


HEAD = '''# Written by swig/julia_generate.py from the C headers. Not to be edited.
"""
The C functions, one to one. Not exported, not for users: nothing here checks what memory means.
"""
module Raw

using ..Tartan: failure

# What C is given stays open and alive until C returns. c_enter says whether it is open and then holds it, c_leave lets
# go of it, c_closed is the error for what is not open. What can be closed adds methods.
c_enter(x) = true
c_leave(x) = nothing
c_isopen(x) = true
function c_closed end
@inline c_enter(x, y, rest...) = c_enter(x) && (c_enter(y, rest...) || (c_leave(x); false))
@inline c_leave(x, y, rest...) = (c_leave(x); c_leave(y, rest...))
@inline c_enter(x::Tuple) = isempty(x) || c_enter(x...)
@inline c_leave(x::Tuple) = isempty(x) ? nothing : c_leave(x...)
c_isopen(x::Tuple) = all(c_isopen, x)

# The handle of T that something has, and its address; what has one adds methods.
c_handle(::Type{T}, x::Ptr{T}) where {T} = x
c_address(x::Ptr) = x

# Several handles of T.
struct HandleList
    list::Vector
end
c_handle_list(::Type{T}, x::Vector) where {T} = HandleList([c_handle(T, y) for y in x])
function c_enter(x::HandleList)
    for (n, handle) in enumerate(x.list)
        c_enter(handle) && continue
        foreach(c_leave, x.list[1:n - 1])
        return false
    end
    return true
end
c_leave(x::HandleList) = foreach(c_leave, x.list)
c_isopen(x::HandleList) = all(c_isopen, x.list)

# The struct S that something stands for, and what must stay open and alive; what stands for one adds methods.
c_value(::Type{S}, x::S) where {S} = x
c_owner(x) = x
c_owner(x::Tuple) = map(c_owner, x)
c_struct(::Type{S}, x) where {S} = Ref(c_value(S, x))
c_struct(::Type{S}, ::Nothing) where {S} = C_NULL
c_values(::Type{S}, ::Tuple{}) where {S} = ()
@inline c_values(::Type{S}, x::Tuple) where {S} = (c_value(S, x[1]), c_values(S, Base.tail(x))...)
@inline c_list(::Type{S}, x::Tuple) where {S} = Ref(c_values(S, x))

# Operands of any kind. Those with a descriptor add a method to c_descriptor; it is where the pointer points to.
c_descriptor(x) = ()
@inline c_descriptors(x::Tuple) = isempty(x) ? () : (c_descriptor(x[1])..., c_descriptors(Base.tail(x))...)
c_place(descriptors) = Base.unsafe_convert(Ptr{Cvoid}, descriptors)
c_pointer(x, place) = Ptr{Cvoid}(c_address(x))
c_pointer(::Nothing, place) = C_NULL
@inline c_pointers(::Tuple{}, place) = ()
@inline function c_pointers(x::Tuple, place)
    own = c_descriptor(x[1])
    return (isempty(own) ? c_pointer(x[1], place) : place, c_pointers(Base.tail(x), place + sizeof(own))...)
end

c_array(x::Array) = x
c_array(x::Tuple) = Ref(x)
c_array(x::Ref) = x
c_array(::Nothing) = C_NULL
c_length(x::Union{Array, Tuple}) = Int64(length(x))
c_length(::Ref) = Int64(1)
c_length(::Nothing) = Int64(0)

function c_text(x::AbstractString)
    text = String(x)
    '\\0' in text && throw(ArgumentError("$(repr(text)) holds a NUL, expected a text without"))
    return text
end
c_text(::Nothing) = Cstring(C_NULL)
c_zero(T) = zero(T)
c_zero(::Type{Ptr{T}}) where {T} = Ptr{T}(C_NULL)
c_string(x::Ptr) = x == C_NULL ? nothing : unsafe_string(x)
c_check(status::Int32) = status == 0 ? nothing : c_fail(status)
@noinline c_fail(status) = throw(failure(status, tartan_last_error()))

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
    lines += ["const ADDRESSES = Pair{Symbol, Base.RefValue{Ptr{Cvoid}}}["]
    lines += [f"    :{name} => address_of_{name}," for name in names] + ["]", ""]
    lines += ["# Finds every function in the library; `find` maps a name to an address or throws.",
              "function bind_all(find)", "    for (name, address) in ADDRESSES", "        address[] = find(name)", "    end",
              "    return nothing", "end", ""]
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


if __name__ == "__main__":
    generate("julia_generate.py", "tartan.xml raw.jl [probe.c]", write_julia, write_probe)
