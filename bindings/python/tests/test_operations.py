# SPDX-License-Identifier: Apache-2.0
"""All operations of the schema in host memory, by the library's own description of them."""

import contextlib
import inspect
import locale
import math
import subprocess
import sys

import numpy as np
import pytest
from conftest import EPS
from operation_support import BY_NAME, OPS, Operands

import tartan
from tartan._arrays import BFLOAT16

DTYPES = ["float64", "float32", "float16"] + ([] if BFLOAT16 is None else ["bfloat16"])
ARRAYS = [op for op in OPS if op.arrays_only]
DIFFERENTIABLE = [op for op in OPS if op.row["gradient"] and op.name != "quantize"]  # whose gradient goes straight through its steps


def erf(x):
    return np.vectorize(math.erf)(x)


def normalised(x, gain, bias, epsilon=1e-5):
    x = x - x.mean(-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
    return y * (1 if gain is None else gain) + (0 if bias is None else bias)


# What NumPy does not have by the same name.
REFERENCES = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "scale": lambda x: x,
    "filter_tensor": lambda x: x,
    "concrete_gate_infer": lambda x: np.clip(1.2 / (1 + np.exp(-x)) - 0.1, 0, 1),
    "glu": lambda a, b: a / (1 + np.exp(-b)),
    "reglu": lambda a, b: a * np.maximum(b, 0),
    "swiglu": lambda a, b: a * b / (1 + np.exp(-b)),
    "geglu": lambda a, b: a * b * (1 + erf(b / np.sqrt(2))) / 2,
    "add_relu": lambda a, b: np.maximum(a + b, 0),
    "add_silu": lambda a, b: (a + b) / (1 + np.exp(-a - b)),
    "add_gelu": lambda a, b: (a + b) * (1 + erf((a + b) / np.sqrt(2))) / 2,
    "softplus": lambda x: np.logaddexp(0, x),
    "layer_norm": normalised,
    "add_layer_norm": lambda x, residual=0, gain=None, bias=None: normalised(x + residual, gain, bias),
    "add_rms_norm": lambda x, residual=0, gain=1: (x + residual) / np.sqrt(((x + residual) ** 2).mean(-1, keepdims=True) + 1e-5) * gain,
    "float_cast": lambda x: x,
    "l2_norm": lambda x, gain=None: x / np.sqrt(np.maximum((x * x).sum(-1, keepdims=True), 1e-12)) * (1 if gain is None else gain),
    "rms_norm": lambda x, gain=None: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * (1 if gain is None else gain),
}


def reference(op):
    return REFERENCES.get(op.name) or getattr(np, op.name, None)


KNOWN = [op for op in ARRAYS if not op.name.endswith("_gradient") and reference(op)]


def finite(op, operands):
    """The same operands, positive where the operation needs that."""
    with np.errstate(all="ignore"):
        results = [np.asarray(x, np.float64) for x in op.results(operands).values() if isinstance(x, (np.ndarray, np.generic))]
    if not all(np.isfinite(x).all() for x in results):
        for name, x in operands.items():
            operands[name] = abs(x)
    return operands


def close(found, wanted, dtype, factor=64):
    assert found.dtype.name == dtype and found.shape == wanted.shape
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=factor * EPS[dtype], atol=factor * EPS[dtype])


# ---- Functions ----


@pytest.mark.parametrize("op", OPS, ids=str)
def test_the_function_takes_what_the_operation_does(op):
    found = inspect.signature(op.function).parameters
    names = [op.names[x["name"]] for x in (*op.arguments, *op.options)]
    flags = ["wrt"] if op.is_tuple else [f"return_{op.names[a['name']]}" for a in op.optional]
    images = ["channels_last"] if any(a["kind"] == "conv" and a["optional"] for a in op.arguments) else []
    assert sorted(found) == sorted([*names, *flags, *images, "context"])
    required = [op.names[a["name"]] for a in op.inputs if not a["optional"]]
    assert [n for n, p in found.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == required
    assert op.function.__doc__ and all(f"`{name}`" in op.function.__doc__ for name in names)
    assert op.name in tartan.__all__


# ---- Values ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", KNOWN, ids=str)
def test_equals_numpy(rng, op, dtype):
    operands = finite(op, Operands(op, rng, dtype))
    wide = {name: np.asarray(x, np.float64) for name, x in operands.items()}
    close(op.call(operands), reference(op)(**wide) if op.name in REFERENCES else reference(op)(*wide.values()), dtype)


@pytest.mark.parametrize("op", [op for op in ARRAYS if op.outputs], ids=str)
def test_strides_and_order(rng, op):
    operands = finite(op, Operands(op, rng))
    wanted = op.results(operands)

    def strided(x):
        room = np.full([2 * n for n in x.shape], np.nan if x.dtype.kind == "f" else 1, x.dtype)
        view = room[tuple(slice(None, None, 2) for _ in x.shape)]
        view[...] = x
        return view

    def reversed_axes(x):
        return np.asfortranarray(x)

    for change in (strided, reversed_axes, lambda x: x[..., ::-1].copy()[..., ::-1]):
        found = op.results({name: change(x) for name, x in operands.items()})
        for name, x in found.items():
            np.testing.assert_allclose(x, wanted[name], rtol=1e-12, atol=1e-14)
    first = op.inputs[0]["name"]
    out = op.results({**operands, first: np.asfortranarray(operands[first])})
    like = op.outputs[0]
    if like["shape"] == "=" + first and out[like["name"]].ndim > 1:
        assert out[like["name"]].flags.f_contiguous  # as NumPy keeps it


def test_the_sum_of_a_list_has_the_order_of_its_first_array(rng):
    x = np.asfortranarray(rng.normal(size=(4, 5)))
    for first, second in ((x, x), (x, x.copy("C")), (x.copy("C"), x)):
        y = tartan.add_n([first, second])
        assert np.array_equal(y, 2 * x) and y.strides == first.strides


@pytest.mark.parametrize("op", ARRAYS, ids=str)
def test_empty_arrays_and_those_without_dimensions(rng, op):
    if any("..." not in a["shape"] and not a["shape"].startswith("=") for a in op.arguments):
        pytest.skip("an operand needs dimensions")
    if op.inputs[0]["shape"] != "[s...]":
        pytest.skip("an operand needs dimensions")
    for shape in ((), (0, 3)):
        found = op.results({a["name"]: np.ones(shape) for a in op.inputs})
        assert all(x.shape == shape for x in found.values())


@pytest.mark.parametrize("op", OPS, ids=str)
def test_outputs_are_written_in_place(rng, op):
    operands = Operands(op, rng)
    wanted = {name: copied(x) for name, x in op.results(operands).items()}
    if any(a["use"] == "update" for a in op.arguments):
        operands = Operands(op, np.random.default_rng(0))
        wanted = {name: copied(x) for name, x in op.results({n: copied(x) for n, x in operands.items()}).items()}
    outs = {op.names[a["name"]]: like(wanted[a["name"]]) for a in op.outputs if a["name"] in wanted}
    found = op.results(operands, **outs)
    for name, out in zip(outs, found.values()):
        assert out is outs[name]
    for name, out in found.items():
        np.testing.assert_array_equal(numbers(out), numbers(wanted[name]))
    for a in op.outputs:
        for name in a["may_be"]:
            same = {n: copied(x) for n, x in operands.items()}
            if name not in same or a["name"] not in wanted:
                continue
            if numbers(same[name]).shape != numbers(wanted[a["name"]]).shape:
                continue
            result = op.results(same, **{op.names[a["name"]]: same[name]})[a["name"]]
            assert result is same[name]
            np.testing.assert_array_equal(numbers(result), numbers(wanted[a["name"]]))


def copied(x):
    return x.copy() if isinstance(x, (np.ndarray, tartan.BlockMatrix)) else x


def numbers(x):
    return x.values if isinstance(x, tartan.BlockMatrix) else np.asarray(x)


def like(x):
    if isinstance(x, tartan.BlockMatrix):
        return tartan.BlockMatrix.zeros(x.layout, x.dtype_name)
    return np.full_like(x, np.nan if x.dtype.kind == "f" else 77)


@pytest.mark.parametrize("op", [op for op in OPS if op.optional and not op.is_tuple], ids=str)
def test_optional_results_come_on_request(rng, op):
    operands = Operands(op, rng)
    alone = op.call(operands)
    for a in op.optional:
        if op.names[a["name"]] == "out":
            continue
        name = op.names[a["name"]]
        first, second = op.call(operands, **{f"return_{name}": True})
        np.testing.assert_array_equal(numbers(first), numbers(alone))
        if isinstance(second, tartan.BlockMatrix):
            room = tartan.BlockMatrix(second.layout, np.full_like(second.values, np.nan))
        else:
            room = np.full_like(second, np.nan if second.dtype.kind == "f" else 77)
        again = op.call(operands, **{name: room})
        assert again[1] is room
        if isinstance(room, tartan.BlockMatrix):  # what pads ragged blocks is not written
            room, second = room.toarray(), second.toarray()
        np.testing.assert_array_equal(room, second)


def test_numbers_and_lists_take_the_dtype_of_arrays():
    x = np.ones((2, 3), np.float32)
    assert tartan.add(x, 2).dtype == tartan.add(2.5, x).dtype == tartan.add([1, 2, 3], x).dtype == np.float32
    assert tartan.add([1, 2], 3).dtype == np.float64
    assert tartan.layer_norm(x, gain=[1, 2, 3]).dtype == np.float32
    assert tartan.add(np.arange(3), 1).tolist() == [1, 2, 3]


# ---- Gradients ----


def gradient_operands(op, operands, rng):
    """Those of the gradient operation, after a call of the operation; and what the results are multiplied by."""
    grad = BY_NAME[op.row["gradient"]]
    results = op.results(operands)
    given = {name: operands.get(name, results.get(name)) for name in op.row["keeps"]}
    weights = {}
    for name, x in results.items():
        if any(a["name"] == name + "_grad" for a in grad.inputs):
            weights[name] = rng.standard_normal(numbers(x).shape)
            given[name + "_grad"] = tartan.BlockMatrix(x.layout, weights[name].copy()) if isinstance(x, tartan.BlockMatrix) else weights[name]
    return grad, {name: x for name, x in given.items() if x is not None}, weights


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=str)
def test_gradients_equal_differences(rng, op):
    operands = finite(op, Operands(op, rng)) if op.arrays_only else Operands(op, rng, block=4)
    grad, given, weights = gradient_operands(op, operands, rng)
    assert weights

    def loss():
        return sum((numbers(x) * weights[name]).sum() for name, x in op.results(operands).items() if name in weights)

    found = grad.results(given)
    assert found
    for name, gradient in found.items():
        x = numbers(operands[name[: -len("_grad")]])
        wanted = np.zeros(x.shape)
        places = list(np.ndindex(*x.shape))
        for place in [places[i] for i in rng.permutation(len(places))[:60]]:
            h, kept = 1e-6, x[place]
            x[place] = kept + h
            above = loss()
            x[place] = kept - h
            wanted[place] = (above - loss()) / (2 * h)
            x[place] = kept
            scale = max(1, np.abs(wanted).max())
            assert abs(numbers(gradient)[place] - wanted[place]) < 1e-5 * scale, (name, place)


@pytest.mark.parametrize("op", [op for op in OPS if op.is_tuple], ids=str)
def test_gradients_by_name(rng, op):
    operands = Operands(op, rng)
    every = op.call(operands)
    fields = every._fields
    for i, field in enumerate(fields):
        one = op.call(operands, wrt=field)
        np.testing.assert_array_equal(numbers(getattr(one, field)), numbers(every[i]))
        optional = [n for n in fields if op.outputs[fields.index(n)]["optional"]]
        assert all(getattr(one, n) is None for n in optional if n != field)
    few = op.call(Operands(op, rng, optional=False))
    for field in fields:
        if any(op.names[a["name"]] == field and a["optional"] for a in op.inputs):
            assert getattr(few, field) is None
    with pytest.raises(tartan.ArgumentError, match="wrt has 'z'"):
        op.call(operands, wrt=("z",))
    with pytest.raises(tartan.ArgumentTypeError, match="wrt is of type int"):
        op.call(operands, wrt=1)


# ---- Refusals ----

WRONG = [object(), "text", b"bytes", {1: 2}, lambda: 0, 1j, tartan]


@pytest.mark.parametrize("op", OPS, ids=str)
def test_wrong_operands_are_refused(rng, op):
    good = Operands(op, rng)
    for a in op.inputs:
        if a["name"] not in good:
            continue
        wrong = [*WRONG, *([] if a["optional"] else [None])]
        if a["kind"] == "array":
            wrong += [good.layout, np.ones((2, 2), complex), np.array(["a"]), np.ones((1,) * 9), np.ma.ones((2, 2))]
            if a["shape"] not in ("[s...]", "[t...]") and len(good) > 1:
                wrong.append(np.ones((2, 7, 11, 13)))
        elif a["kind"] == "arrays":
            wrong += [1, [], ["text", "text"], [object(), object()]]
        else:
            wrong += [1, np.ones(3), good.layout if a["kind"] != "layout" else np.ones(2)]
        for x in wrong:
            before = {n: numbers(y).copy() for n, y in good.items() if isinstance(y, (np.ndarray, tartan.BlockMatrix))}
            with pytest.raises(tartan.TartanError) as caught:
                op.call({**good, a["name"]: x})
            about = [op.names[a["name"]]] if np.ndim(x) < 3 else [*op.names.values(), "fit together"]
            assert any(name in str(caught.value) for name in about), (a["name"], x)
            assert all((numbers(good[n]) == y).all() for n, y in before.items())


@pytest.mark.parametrize("op", OPS, ids=str)
def test_outputs_are_operands_and_nothing_else(rng, op):
    """Numbers, tuples and the like are no instructions."""
    operands = Operands(op, rng)
    results = op.results(operands)
    for a in op.outputs:
        name = op.names[a["name"]]
        wrong = [-1, 0, 1, True, (), (1, 2), (1, 1, 4, 4), [0.0], "out", 2.5, np.float64(1), object(), lambda: 0]
        if a["kind"] == "array":
            wrong += [np.ones((2, 2), int), np.ones((2, 2), complex), np.ones((9, 9, 9)), operands.layout]
            if a["name"] in results:
                frozen = results[a["name"]].copy()
                frozen.flags.writeable = False
                wrong.append(frozen)
        for x in wrong:
            with pytest.raises(tartan.TartanError, match=f"{name}|fit together"):
                op.call(operands, **{name: x})


@pytest.mark.parametrize("op", OPS, ids=str)
def test_unknown_names_are_refused(rng, op):
    operands = Operands(op, rng)
    with pytest.raises(TypeError, match="unknown"):
        op.call(operands, unknown=1)
    with pytest.raises(TypeError):
        op.function()
    for context in (3, object(), "nowhere"):
        with pytest.raises(tartan.TartanError):
            op.call(operands, context=context)


def values_of(option):
    """(right values, wrong ones) of an option."""
    kind, bad = option["kind"], [object(), [1.5, "a"], {}]
    if kind == "flag":
        return [True, False, 1, 0, np.True_], [*bad, "yes", 2, -1, 0.5, None]
    if kind == "word":
        return option["words"], [*bad, 1, None, "no such word", "a b"]
    if kind == "sizes":
        return [None, ()], [object(), "1x2", 1.5, [1.5], ["a"], [2**70], range(40)]
    if kind == "whole":
        return [int(option["default"]), np.int32(option["default"])], [*bad, 1.5, "1", None, 2**70, -(2**70)]
    if "^" in option["default"]:  # a formula of other options
        return [None], [*bad, "1", math.nan, math.inf, 10**400, 1j, np.ones(2)]
    default = {"pi": math.pi}.get(option["default"]) or float(option["default"])
    right = [default, np.float32(default), default + 1e-9 if default else 0.0]
    return right, [*bad, "1", None, math.nan, math.inf, -math.inf, 10**400, 1j, np.ones(2)]


@pytest.mark.parametrize("op", [op for op in OPS if op.options], ids=str)
def test_options_of_the_wrong_kind_are_refused(rng, op):
    operands = Operands(op, rng)
    for option in op.options:
        name = op.names[option["name"]]
        right, wrong = values_of(option)
        if name == "seed" and op.draws:
            wrong = [x for x in wrong if x is not None]
        for value in right:
            with contextlib.suppress(tartan.ShapeError):  # of factors that would have to be others on the right
                op.call(operands, **{name: value})
        low = option["range"].split()[0] if option["range"][:1].strip("-").isdigit() or option["range"][:1] == "-" else None
        if low is not None:
            wrong.append(int(low) - 1)
        for value in wrong:
            with pytest.raises(tartan.TartanError, match=name):
                op.call(operands, **{name: value})


def test_options_arrive_in_full(rng):
    x = rng.standard_normal((3, 5))
    for epsilon in (1 / 3, 5e-324, 1.7976931348623157e308, 0, 123456789.123456789):
        np.testing.assert_allclose(tartan.layer_norm(x, epsilon=epsilon), normalised(x, None, None, epsilon), rtol=1e-12, atol=1e-300)


def test_options_do_not_depend_on_the_locale():
    found = next((name for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "de_DE") if has_locale(name)), None)
    if found is None:
        pytest.skip("no locale with another decimal point here")
    code = f"""
import locale; locale.setlocale(locale.LC_ALL, {found!r})
import numpy as np, tartan
assert locale.localeconv()["decimal_point"] == ","
assert tartan.elu(np.array([-1.0]), alpha=0.5)[0] == 0.5 * np.expm1(-1.0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def has_locale(name):
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, name)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_ALL, before)
    return True


def test_explain_describes_the_call():
    x = np.ones((4, 8))
    (plan,) = tartan.explain(tartan.layer_norm, x, gain=np.ones(8))
    assert plan["operation"] == "layer_norm" and plan["device"] == "cpu"
