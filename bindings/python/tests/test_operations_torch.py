# SPDX-License-Identifier: Apache-2.0
"""All operations of the schema on tensors of PyTorch, and their gradients as autograd records them."""

import numpy as np
import pytest
from operation_support import BY_NAME, OPS, Operands, sum_dtype
from test_operations import finite

import tartan

torch = pytest.importorskip("torch")
_torch_points = pytest.importorskip("tartan._torch_points")

ARRAYS = [op for op in OPS if op.arrays_only]
RECORDED = [op for op in ARRAYS if op.row["gradient"]]


def tensor(values, dtype="float64"):
    return torch.from_numpy(np.ascontiguousarray(np.asarray(values, np.float64))).to(getattr(torch, dtype))


def first_of(found):
    return found[0] if isinstance(found, tuple) else found


def total(found):
    """The sum of all results."""
    return sum(y.float().sum() if y.dtype != torch.float64 else y.sum() for y in (found if isinstance(found, tuple) else (found,)))


def tensors(op, rng, dtype="float64"):
    operands = Operands(op, rng, array=lambda x, _: np.asarray(x))
    finite(op, operands)
    return {
        a["name"]: torch.from_numpy(operands[a["name"]]) if a["dtype"] in ("I", "U8")
        else tensor(operands[a["name"]], sum_dtype(dtype) if a["dtype"] == "S" else dtype)
        for a in op.inputs
    }  # fmt: skip


def trained(op, given):
    """The names of operands that have gradients."""
    found = [a["name"] for a in BY_NAME[op.row["gradient"]].outputs]
    return [name for name in given if name + "_grad" in found]


def wide(x):
    return x.double() if x.dtype.is_floating_point else x


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ARRAYS, ids=str)
def test_tensors_give_tensors(rng, op, dtype):
    given = tensors(op, rng, dtype)
    found = op.results(given)
    exact = op.results({name: wide(x).numpy() for name, x in given.items()})
    for name, x in found.items():
        assert isinstance(x, torch.Tensor) and not x.requires_grad
        if not x.dtype.is_floating_point:  # indices
            assert (x.numpy() == exact[name]).all()
            continue
        error = (x.double() - torch.from_numpy(exact[name])).abs().max()
        # These are made of numbers that were rounded to the dtype of another result.
        made = {("lstm_gates_gradient", "bias_grad"), ("add_layer_norm", "stats"), ("add_rms_norm", "stats")}
        rounded = dtype if (op.name, name) in made else str(x.dtype).removeprefix("torch.")
        assert error <= 64 * torch.finfo(getattr(torch, rounded)).eps * (1 + np.abs(exact[name]).max())


@pytest.mark.parametrize("op", ARRAYS, ids=str)
def test_expanded_and_permuted_tensors(rng, op):
    given = tensors(op, rng)
    wanted = op.results(given)
    found = op.results({name: x.mT.contiguous().mT if x.ndim > 1 else x for name, x in given.items()})
    for name, x in found.items():
        assert torch.allclose(x, wanted[name], rtol=1e-12, atol=1e-14)


# The gradient of quantize goes straight through its steps.
@pytest.mark.parametrize("op", [op for op in RECORDED if op.name != "quantize"], ids=str)
def test_gradcheck(rng, op):
    given = tensors(op, rng)
    names = trained(op, given)
    inputs = [given[n].requires_grad_() for n in names]
    assert torch.autograd.gradcheck(lambda *x: op.call({**given, **dict(zip(names, x))}), inputs)
    for i, name in enumerate(names):  # one alone
        alone = [x.detach().requires_grad_(j == i) for j, x in enumerate(inputs)]
        total(op.call({**given, **dict(zip(names, alone))})).backward()
        assert [x.grad is not None for x in alone] == [j == i for j in range(len(alone))], name


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", RECORDED, ids=str)
def test_gradients_have_the_dtype_of_what_they_are_of(rng, op, dtype):
    given = tensors(op, rng, dtype)
    names = trained(op, given)
    exact = {name: wide(x.detach()).requires_grad_(name in names) for name, x in given.items()}
    for name in names:
        given[name].requires_grad_()
    total(op.call(given)).backward()
    total(op.call(exact)).backward()
    for name in names:
        x = given[name]
        assert x.grad.dtype == x.dtype and x.grad.shape == x.shape
        error = (x.grad.double() - exact[name].grad).abs().max()
        assert error <= 128 * torch.finfo(getattr(torch, dtype)).eps * (1 + exact[name].grad.abs().max())


def test_mixed_dtypes():
    a = torch.ones(2, 3, dtype=torch.float16, requires_grad=True)
    b = torch.ones(3, requires_grad=True)
    y = tartan.multiply(a, b)
    assert y.dtype == torch.float16
    y.sum().backward()
    assert a.grad.dtype == torch.float16 and b.grad.dtype == torch.float32 and b.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("op", RECORDED, ids=str)
def test_second_derivatives_are_right_or_refused(rng, op):
    given = tensors(op, rng)
    names = trained(op, given)
    inputs = [given[n].requires_grad_() for n in names]
    y = op.call(given)
    try:
        torch.autograd.grad(total(y), inputs, create_graph=True)
    except tartan.UnsupportedError as error:
        assert op.name in str(error) and "create_graph" in str(error)
        return
    assert torch.autograd.gradgradcheck(lambda *x: op.call({**given, **dict(zip(names, x))}), inputs)


@pytest.mark.parametrize("op", [op for op in RECORDED if hasattr(_torch_points, op.name)], ids=str)
def test_element_wise_functions_have_second_derivatives(rng, op):
    given = tensors(op, rng)
    names = list(given)
    inputs = [given[n].requires_grad_() for n in names]
    assert torch.autograd.gradgradcheck(lambda *x: op.call(dict(zip(names, x))), inputs)
    x = torch.ones(1, 1, requires_grad=True)
    y = tartan.square(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (y.sum() + g.pow(2).sum()).backward()
    assert x.grad.item() == 10 and x.grad.dtype == torch.float32


@pytest.mark.parametrize("op", RECORDED, ids=str)
def test_what_is_not_recorded(rng, op):
    given = tensors(op, rng)
    first = op.inputs[0]["name"]
    recorded = {**given, first: given[first].requires_grad_()}
    with torch.no_grad():
        assert first_of(op.call(recorded)).grad_fn is None
    with torch.inference_mode():
        assert first_of(op.call(recorded)).grad_fn is None
    assert first_of(op.call(recorded)).grad_fn is not None
    shape = first_of(op.call({name: x.detach() for name, x in given.items()})).shape
    with pytest.raises(tartan.ArgumentError, match="out is given, expected none where PyTorch records"):
        op.call(recorded, out=torch.empty(shape, dtype=torch.float64))
    leaf = torch.empty(shape, dtype=torch.float64, requires_grad=True)
    with pytest.raises(tartan.ArgumentError, match="out requires gradients"):
        op.call({name: x.detach() for name, x in given.items()}, out=leaf)


def test_an_operand_of_another_library_beside_a_recorded_one():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    gain = np.arange(1.0, 5)
    y = tartan.layer_norm(x, gain=gain, bias=[0.0, 1, 2, 3])
    y.pow(2).sum().backward()
    z = x.detach().clone().requires_grad_()
    torch.nn.functional.layer_norm(z, (4,), torch.from_numpy(gain), torch.arange(4.0, dtype=torch.float64)).pow(2).sum().backward()
    assert torch.allclose(x.grad, z.grad)


def test_optional_results_are_recorded_as_constants():
    x = torch.randn(3, 4, requires_grad=True)
    y, stats = tartan.layer_norm(x, return_stats=True)
    assert y.requires_grad and not stats.requires_grad
    y.sum().backward()


def test_an_operand_that_changes_before_the_backward_pass_is_noticed():
    x = torch.randn(3, 4, requires_grad=True)
    z = x * 1
    y = tartan.square(z)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_modules_of_pytorch_agree():
    x = torch.randn(5, 8, dtype=torch.float64)
    functional = torch.nn.functional
    for name in ("sigmoid", "relu", "elu", "gelu", "silu", "softplus", "tanh"):
        assert torch.allclose(getattr(tartan, name)(x), getattr(functional, name, getattr(torch, name, None))(x)), name
    gain, bias = torch.randn(2, 8, dtype=torch.float64)
    assert torch.allclose(tartan.layer_norm(x, gain=gain, bias=bias), functional.layer_norm(x, (8,), gain, bias))
    assert torch.allclose(tartan.l2_norm(x, gain=gain), functional.normalize(x, dim=-1) * gain)
    if hasattr(functional, "rms_norm"):
        assert torch.allclose(tartan.rms_norm(x, gain=gain), functional.rms_norm(x, (8,), gain, 1e-5))


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("segments", [1, 4])
def test_norms_of_sums_are_those_of_pytorch(rng, activation, segments):
    f = torch.nn.functional
    acts = {"none": lambda x: x, "relu": f.relu, "gelu": f.gelu, "silu": f.silu}
    x, r, u, v = (tensor(rng.standard_normal((5, 3, 24))) for _ in range(4))
    gain, bias = (tensor(rng.standard_normal(24)) for _ in range(2))
    for centred in (True, False):
        given = [x, r, gain, *([bias] if centred else [])]
        mine, theirs = ([t.clone().requires_grad_() for t in given] for _ in range(2))
        names = {"gain": mine[2], "bias": mine[3]} if centred else {"gain": mine[2]}
        norm = tartan.add_layer_norm if centred else tartan.add_rms_norm
        y, total = norm(mine[0], residual=mine[1], **names, segments=segments, activation=activation, epsilon=1e-3, return_total=True)
        both = theirs[0] + theirs[1]
        parts = both.unflatten(-1, (segments, -1))
        found = f.layer_norm(parts, parts.shape[-1:], eps=1e-3) if centred else f.rms_norm(parts, parts.shape[-1:], eps=1e-3)
        wanted = acts[activation](found.flatten(-2) * theirs[2] + (theirs[3] if centred else 0))
        assert torch.allclose(y, wanted, rtol=1e-11, atol=1e-12) and torch.equal(total, both)
        ((y * u).sum() + (total * v).sum()).backward()
        ((wanted * u).sum() + (both * v).sum()).backward()
        for a, b in zip(mine, theirs):
            assert torch.allclose(a.grad, b.grad, rtol=1e-10, atol=1e-11)
        alone = norm(mine[0].detach().requires_grad_(), gain=gain, activation=activation, segments=segments)  # total goes nowhere
        alone.sum().backward()


def test_casts_have_gradients_of_their_own(rng):
    x = tensor(rng.standard_normal(100), "float32").requires_grad_()
    y = tartan.float_cast(x, dtype="float16", gradient_dtype="bfloat16")
    assert y.dtype == torch.float16 and torch.equal(y, x.detach().half())
    g = tensor(rng.standard_normal(100), "float16")
    y.backward(g)
    assert x.grad.dtype == torch.float32 and torch.equal(x.grad, g.bfloat16().float())
    assert tartan.float_cast(x.detach(), dtype="float8_e4m3fn").dtype == torch.float8_e4m3fn
    compiled = torch.compile(lambda x: tartan.float_cast(x, dtype="bfloat16"), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), x.detach().bfloat16())
