# SPDX-License-Identifier: Apache-2.0
"""The generators for Julia, Python and ctypes: what they write, and that they refuse what they could only guess. Runs alone or
under pytest."""
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

try:
    import pytest
except ImportError:
    sys.exit(77)  # Meson: skipped

SWIG = Path(__file__).resolve().parents[2] / "swig"
PRELUDE = """
#include <stdint.h>
typedef enum tartan_status { TARTAN_OK = 0, TARTAN_ERR = -1 } tartan_status;
typedef struct thing thing;
typedef struct frame { int64_t rows; int32_t sizes[4]; void *data; } frame;
const char *tartan_last_error(void);
const char *tartan_status_name(int32_t status);
void tartan_text_free(void *text);
"""


def generate(directory, header, features=""):
    """Runs SWIG and the generator on PRELUDE + header; the result of the process and the Julia text."""
    (directory / "tartan.h").write_text(PRELUDE + header)
    (directory / "tartan.i").write_text("%module tartan\n" + features + '\n%include "tartan.h"\n')
    xml, raw, probe = (directory / name for name in ("tartan.xml", "raw.jl", "probe.c"))
    subprocess.run(["swig", "-xml", "-w451", f"-I{directory}", "-o", xml, directory / "tartan.i"],
                   check=True, capture_output=True, text=True)
    result = subprocess.run([sys.executable, str(SWIG / "julia_generate.py"), str(xml), str(raw), str(probe)],
                            capture_output=True, text=True)
    return result, raw.read_text() if raw.exists() else None


def julia_of(directory, header, features=""):
    result, text = generate(directory, header, features)
    assert result.returncode == 0, result.stderr
    return text


REFUSED = {
    "bit-field": ("struct bits { int a : 3; };", "bit-field 'a'"),
    "union": ("union both { int a; float b; };", "union"),
    "union member": ("struct s { union { int a; float b; } u; };", "not known"),
    "variable arguments": ("void f(const char *format, ...);", "variable arguments"),
    "long double": ("void f(long double x);", "long double"),
    "long double field": ("struct s { long double x; };", "long double"),
    "long double result": ("long double f(void);", "long double"),
    "complex": ("void f(double _Complex x);", "_Complex"),
    "long": ("void f(long n);", "type 'long' is not known"),
    "unknown type": ("void f(mystery x);", "type 'mystery' is not known"),
    "unknown pointer": ("void f(const mystery *x);", "mystery"),
    "unknown field": ("struct s { mystery x; };", "mystery"),
    "unknown in callback": ("typedef void (*call)(mystery x);", "mystery"),
    "long double in callback": ("typedef void (*call)(long double x);", "long double"),
    "scalar pointer": ("void f(const int64_t *x);", "direction"),
    "written, not named": ("void f(int64_t *x, int64_t nx);", "out_"),
    "length of another type": ("void f(const int64_t *x, int32_t nx);", "direction"),
    "length of another name": ("void f(const int64_t *x, int64_t n);", "direction"),
    "array of pointers": ("void f(const char **names, int64_t nnames);", "array"),
    "struct to write": ("void f(frame *x);", "direction"),
    "text to write": ("void f(char *x);", "direction"),
    "pointer to pointer": ("void f(double **out);", "output"),
    "unnamed parameter": ("void f(int32_t);", "without a name"),
    "array parameter": ("void f(int32_t x[4]);", "'x'"),
    "two results": ("int32_t f(double *out_x);", "returns a value and has outputs"),
    "variable": ("extern int counter;", "'variable' is not understood"),
    "function typedef": ("typedef void call(int32_t x);", "typedef"),
    "scalar typedef": ("typedef int64_t count;", "typedef"),
    "floating constant": ("#define RATIO 0.5", "constant"),
    "enum with sizeof": ("enum { A = sizeof(int) };", "not understood"),
    "enum too large": ("enum { A = 0x100000000 };", "32 bits"),
    "name of the generator": ("void f(int32_t c_check);", "generator"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(tmp_path, name):
    header, text = REFUSED[name]
    result, julia = generate(tmp_path, header + "\n")
    assert result.returncode != 0
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert julia is None  # nothing is written


def test_refuses_features_of_unknown_parameters(tmp_path):
    result, _ = generate(tmp_path, "void f(frame *x);", '%feature("tartan:out", "y") f;')
    assert result.returncode != 0 and "'y'" in result.stderr


def test_names_the_function_and_the_parameter(tmp_path):
    result, _ = generate(tmp_path, "void some_function(int32_t a, mystery some_parameter);")
    assert "some_function" in result.stderr and "mystery" in result.stderr


def test_structs(tmp_path):
    text = julia_of(tmp_path, "")
    assert "struct frame\n    rows::Int64\n    sizes::NTuple{4, Int32}\n    data::Ptr{Cvoid}\nend\n" in text
    assert "mutable struct thing end\n" in text


def test_constants(tmp_path):
    text = julia_of(tmp_path, """
#define SIZE 8u
#define NAME "block"
enum { A = 1 << 4, B, C = A | 3, D = -1, E = 'q', F = 0x10UL, G = ~0 };
""")
    for line in "A = 16", "B = 17", "C = 19", "D = -1", "E = 113", "F = 16", "G = -1", "SIZE = 8", 'NAME = "block"':
        assert f"const {line}\n" in text


def test_arrays_and_status(tmp_path):
    text = julia_of(tmp_path, "tartan_status f(const thing *t, const double *x, int64_t nx, int64_t *out_y,"
                              " int64_t nout_y);")
    assert "function f(t, x::Union{Array{Float64}, Tuple{Vararg{Float64}}, Nothing}, out_y::Union{Array{Int64}, Ref{Int64}})\n" in text
    assert "(Ptr{thing}, Ptr{Cvoid}, Int64, Ptr{Cvoid}, Int64,)" in text
    assert "c_address(raw_t), raw_x, c_length(x), raw_out_y, c_length(out_y))" in text
    assert "    c_check(c_result)\n    return nothing\nend" in text


def test_operands_of_any_kind(tmp_path):
    text = julia_of(tmp_path, "tartan_status f(thing *t, void *const *arguments, int64_t narguments);")
    assert "function f(t, arguments::Tuple)\n" in text and "(Ptr{thing}, Ptr{Cvoid}, Int64,)" in text
    assert "Ref(c_pointers(arguments, c_place(raw_arguments))), length(arguments))" in text
    assert "c_enter(raw_t, owner_arguments)" in text and "GC.@preserve t raw_arguments owner_arguments ccall(" in text


def test_calls_hold_what_can_be_closed_after_all_that_can_throw(tmp_path):
    text = julia_of(tmp_path, "tartan_status f(thing *first, int32_t n, const thing *second, const frame *x, const char *name);")
    lines = [line.strip() for line in text[text.index("function f("):].splitlines()]
    entered = lines.index("c_enter(raw_first, raw_second, owner_x) || throw(c_closed(raw_first, raw_second, owner_x))")
    left = lines.index("c_leave(raw_first, raw_second, owner_x)")
    before, between = lines[:entered], lines[entered + 1:left]
    assert before[-2:] == ["raw_second = c_handle(thing, second)", "raw_first = c_handle(thing, first)"]
    assert {"n = convert(Int32, n)", "name = c_text(name)", "raw_x = c_struct(frame, x)"} <= set(before)
    assert between[0] == "c_retry = true" and "GC.@preserve first second owner_x ccall(address_of_f[]" in between[1]
    assert between[2:] == ["c_retry = false", "GC.gc()", "end"] and lines[left + 1] == "c_check(c_result)"


def test_outputs_are_returned(tmp_path):
    text = julia_of(tmp_path, "tartan_status f(double *out_x, thing **out);")
    assert "function f()\n    out_x = Ref(c_zero(Float64))\n    out = Ref(c_zero(Ptr{thing}))\n" in text
    assert "return out_x[], out[]" in text


def test_texts(tmp_path):
    text = julia_of(tmp_path, "tartan_status f(const char *name, char **out_text); const char *g(void);")
    assert "function f(name::Union{AbstractString, Nothing})" in text
    assert "return c_taken(out_text[])" in text
    assert "c_result = c_string(ccall(address_of_g[], Ptr{Cchar}, ()))\n    return c_result" in text


def test_features(tmp_path):
    text = julia_of(tmp_path, "void f(frame *x); void g(frame *x); void h(frame *out_x);",
                    '%feature("tartan:descriptor", "1") frame; %feature("tartan:out", "x") g;'
                    '%feature("tartan:in", "out_x") h;')
    assert "function f(x)\n    raw_x = c_struct(frame, x)\n" in text and "ccall(address_of_f[], Cvoid, (Ptr{frame},), raw_x)" in text
    assert "function g()\n    x = Ref{frame}()\n" in text and "return x[]" in text
    assert "function h(out_x)" in text


def test_callbacks_and_reserved_names(tmp_path):
    text = julia_of(tmp_path, "typedef void (*task)(void *data, int32_t n); void f(task begin, void *end);")
    assert "function f(begin_, end_)\n" in text
    assert "ccall(address_of_f[], Cvoid, (Ptr{Cvoid}, Ptr{Cvoid},), begin_, end_)" in text


def test_ignored_and_inline_functions_are_left_out(tmp_path):
    text = julia_of(tmp_path, "void f(mystery x); static inline int g(int x) { return x; }", "%ignore f;")
    assert "function f(" not in text and "function g(" not in text


def test_every_function_is_bound(tmp_path):
    text = julia_of(tmp_path, "void f(void); void g(int32_t x);")
    for name in ("f", "g", "tartan_last_error"):
        assert f"const address_of_{name} = Ref(C_NULL)" in text
        assert f"    :{name} => address_of_{name},\n" in text


def test_is_deterministic(tmp_path):
    header = "void f(int32_t x); enum { A = 1 };"
    assert julia_of(tmp_path, header) == julia_of(tmp_path, header)


def test_probe_compiles_and_agrees(tmp_path):
    julia_of(tmp_path, "enum { A = 5 };")
    probe = tmp_path / "probe"
    subprocess.run(["cc", f"-I{tmp_path}", f"{probe}.c", "-o", probe], check=True)
    lines = subprocess.run([probe], check=True, capture_output=True, text=True).stdout.splitlines()
    assert "struct frame 32" in lines and "field frame sizes 8 16" in lines and "constant A 5" in lines


def includes(directory):
    """Where the public headers are; the one that is generated is in `directory`."""
    root, generated = SWIG.parent, directory / "tartan/operations.h"
    generated.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, root / "lib/ops/schema/generate_c.py", generated], check=True)
    return [f"-I{root}/lib/include", f"-I{directory}"]


def public_headers(directory, *probe):
    """The Julia layer of the real headers, and the program that prints what the compiler sees."""
    xml, raw = directory / "julia.xml", directory / "raw.jl"
    subprocess.run(["swig", "-xml", f"-I{SWIG}", *includes(directory), "-o", xml, SWIG / "lang/julia.i"], check=True)
    subprocess.run([sys.executable, SWIG / "julia_generate.py", xml, raw, *probe], check=True)
    return raw.read_text()


def test_the_public_headers(tmp_path):
    root = SWIG.parent
    text, ignored = public_headers(tmp_path), set(re.findall(r"%ignore (\w+);", (SWIG / "tartan.i").read_text()))
    for header in (root / "lib/include/tartan").glob("*.h"):
        code = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        for name in set(re.findall(r"TARTAN_API[^;(]*?(tartan_\w+)\(", code)) - ignored:
            assert f"function {name}(" in text, name


# ---- Python's stub ----

HINTS = """
%typemap(hint) int32_t, int64_t "int"
%typemap(hint) const thing *, thing * "Handle"
%typemap(hint) thing **out "-> Handle"
%typemap(hint) (const double *IN_DOUBLE, int64_t IN_COUNT) "Buffer"
%typemap(hint) (double *OUT_DOUBLE, int64_t OUT_COUNT) "Written"
%typemap(hint) const char * "str"
%typemap(hint) const char *OPTIONAL_TEXT "Optional[str]"
%typemap(hintout) tartan_status, void "None"
%typemap(hintout) int32_t "int"
%typemap(hintout) const char * "Optional[str]"
%apply (const double *IN_DOUBLE, int64_t IN_COUNT) { (const double *x, int64_t nx) };
%apply (double *OUT_DOUBLE, int64_t OUT_COUNT) { (double *out_y, int64_t nout_y) };
%apply const char *OPTIONAL_TEXT { const char *metadata };
%ignore tartan_text_free;
"""


def stub_of(directory, header):
    (directory / "glue.pyi").write_text("class Handle: ...\n")
    (directory / "tartan.h").write_text(PRELUDE + header)
    (directory / "tartan.i").write_text("%module tartan\n" + HINTS + '\n%include "tartan.h"\n')
    xml, stub = directory / "tartan.xml", directory / "_raw.pyi"
    subprocess.run(["swig", "-xml", "-w451", f"-I{directory}", "-o", xml, directory / "tartan.i"],
                   check=True, capture_output=True, text=True)
    result = subprocess.run([sys.executable, str(SWIG / "python_generate.py"), str(xml), str(directory / "glue.pyi"), str(stub)],
                            capture_output=True, text=True)
    return result, stub.read_text() if stub.exists() else None


@pytest.mark.parametrize("header, line", [
    ("int32_t f(const thing *t, const double *x, int64_t nx);", "def f(t: Handle, x: Buffer, /) -> int: ..."),
    ("tartan_status f(int64_t n, double *out_y, int64_t nout_y, thing **out);", "def f(n: int, out_y: Written, /) -> Handle: ..."),
    ("void f(const char *name, const char *metadata);", "def f(name: str, metadata: Optional[str], /) -> None: ..."),
    ("const char *f(void);", "def f() -> Optional[str]: ..."),
    ("void f(int32_t from);", "def f(from_: int, /) -> None: ..."),
    ("enum { SOME = 3 };", "SOME: int"),
    ('#define NAME "block"', "NAME: str"),
])
def test_stub(tmp_path, header, line):
    result, text = stub_of(tmp_path, header + "\n")
    assert result.returncode == 0, result.stderr
    assert text.startswith("class Handle: ...\n") and line in text.splitlines()


@pytest.mark.parametrize("header, words", [
    ("void f(double x);", "no typemap 'hint' for 'x' of type 'double'"),
    ("void f(const double *z, int64_t nz);", "'z' of type 'p.q(const).double'"),
    ("double f(void);", "no typemap 'hintout' for 'the result'"),
    ("int32_t f(thing **out);", "more than one result"),
])
def test_stub_refuses(tmp_path, header, words):
    result, text = stub_of(tmp_path, header + "\n")
    assert result.returncode != 0 and words in result.stderr and result.stderr.startswith("python_generate.py: f: ")
    assert text is None


# ---- ctypes ----

def ctypes_of(directory, header):
    (directory / "tartan.h").write_text(PRELUDE + header)
    (directory / "tartan.i").write_text('%module tartan\n%include "tartan.h"\n')
    xml, written = directory / "tartan.xml", directory / "tartan_ctypes.py"
    subprocess.run(["swig", "-xml", "-w451", f"-I{directory}", "-o", xml, directory / "tartan.i"],
                   check=True, capture_output=True, text=True)
    result = subprocess.run([sys.executable, str(SWIG / "ctypes_generate.py"), str(xml), str(written)],
                            capture_output=True, text=True)
    return result, written.read_text() if written.exists() else None


@pytest.mark.parametrize("header, line", [
    ("void f(thing *t, const char *name, size_t n);", '"f": (None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),'),
    ("tartan_status f(const frame *x, int64_t n, thing **out);",
     '"f": (ctypes.c_int32, [POINTER(frame), ctypes.c_int64, POINTER(ctypes.c_void_p)]),'),
    ("double f(const double *x, int64_t nx);", '"f": (ctypes.c_double, [POINTER(ctypes.c_double), ctypes.c_int64]),'),
    ("tartan_status f(char **out_text);", '"f": (ctypes.c_int32, [POINTER(ctypes.c_void_p)]),'),
    ("typedef void (*task)(void *data); void f(task t, _Bool b, unsigned int u);",
     '"f": (None, [ctypes.c_void_p, ctypes.c_bool, ctypes.c_uint]),'),
    ("enum { SOME = 3 };", "SOME = 3"),
    ('#define NAME "block"', "NAME = 'block'"),
])
def test_ctypes(tmp_path, header, line):
    result, text = ctypes_of(tmp_path, header + "\n")
    assert result.returncode == 0, result.stderr
    assert line in [written.strip() for written in text.splitlines()]


def test_ctypes_refuses(tmp_path):
    result, text = ctypes_of(tmp_path, "void f(long double x);")
    assert result.returncode != 0 and text is None
    assert result.stderr == "ctypes_generate.py: f: type 'long double' is not known\n"


def test_ctypes_sees_what_the_compiler_sees(tmp_path):
    """Structs and constants of the public headers, against a program that prints them."""
    xml, written, probe = tmp_path / "tartan.xml", tmp_path / "tartan_ctypes.py", tmp_path / "probe"
    subprocess.run(["swig", "-xml", f"-I{SWIG}", *includes(tmp_path), "-o", xml, SWIG / "tartan.i"], check=True)
    subprocess.run([sys.executable, SWIG / "ctypes_generate.py", xml, written], check=True)
    public_headers(tmp_path, f"{probe}.c")
    subprocess.run(["cc", *includes(tmp_path), f"{probe}.c", "-o", probe], check=True)
    names = {}
    exec(written.read_text(), names)  # pylint: disable=exec-used
    seen = set()
    for line in subprocess.run([probe], check=True, capture_output=True, text=True).stdout.splitlines():
        kind, name, *rest = line.split()
        seen.add(kind)
        if name.startswith(("tartan_op_", "TARTAN_OPERAND_")):  # lang/julia.i alone reads tartan/operation.h
            continue
        if kind == "struct":
            assert ctypes.sizeof(names[name]) == int(rest[0])
        elif kind == "field":
            field = getattr(names[name], rest[0])
            assert [field.offset, field.size] == [int(number) for number in rest[1:]], line
        else:
            assert names[name] == int(rest[0])
    assert seen == {"struct", "field", "constant"}


# ---- R ----

def r_constants_of(directory, header):
    (directory / "tartan.h").write_text(PRELUDE + header)
    (directory / "tartan.i").write_text('%module tartan\n%include "tartan.h"\n')
    xml, code = directory / "tartan.xml", directory / "constants.R"
    subprocess.run(["swig", "-xml", "-w451", f"-I{directory}", "-o", xml, directory / "tartan.i"],
                   check=True, capture_output=True, text=True)
    result = subprocess.run([sys.executable, str(SWIG / "r_constants.py"), str(xml), str(code)],
                            capture_output=True, text=True)
    return result, code.read_text() if code.exists() else None


def test_r_constants(tmp_path):
    result, text = r_constants_of(tmp_path, "enum { FIRST = 1 << 3, SECOND };\n#define LIMIT 40\n#define NAME \"x\"\n")
    assert result.returncode == 0, result.stderr
    assert text.splitlines()[1:] == ["TARTAN_OK <- 0L", "TARTAN_ERR <- -1L", "FIRST <- 8L", "SECOND <- 9L", "LIMIT <- 40L"]


def test_r_constants_refuse(tmp_path):
    result, text = r_constants_of(tmp_path, "enum { LARGE = 4294967296 };\n")
    assert result.returncode != 0 and result.stderr.startswith("r_constants.py: ") and "LARGE" in result.stderr
    assert text is None


if __name__ == "__main__":
    results = os.environ.get("TARTAN_TEST_RESULTS")
    report = [f"--junitxml={results}/generator.xml"] if results else []
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *report, __file__]))
