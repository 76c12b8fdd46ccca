# SPDX-License-Identifier: Apache-2.0
"""The operations of the schema as operators of PyTorch: what traces, transforms and compiles calls of tartan's functions."""

import gc

import numpy as np
import pytest
from operation_support import OPS, Operands

import tartan

torch = pytest.importorskip("torch")
import tartan.torch  # noqa: E402
from tartan.torch import BlockSparseAttention, BlockSparseConv2d, BlockSparseLinear, _cells, _schema  # noqa: E402
from test_operations_torch import first_of, tensors, total, trained  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

UPDATING = [op for op in OPS if any(a["use"] == "update" for a in op.arguments)]
ARRAYS = [op for op in OPS if op.arrays_only and op not in UPDATING]
RECORDED = [op for op in ARRAYS if op.row["gradient"]]
OTHERS = [op for op in OPS if not op.arrays_only and not op.has_lists and op not in UPDATING]


def as_tuple(x):
    return tuple(y for y in x if y is not None) if isinstance(x, tuple) else (x,)


def names_of(graph):
    return [node.target.name() for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


def case(op, rng):
    """A function of tensors, and the tensors."""
    given = tensors(op, rng)
    names = list(given)
    return (lambda *x: as_tuple(op.call(dict(zip(names, x))))), [given[name] for name in names], names


@pytest.mark.parametrize("op", ARRAYS, ids=str)
def test_tracing(rng, op):
    function, given, _ = case(op, rng)
    wanted = function(*given)
    for graph in (make_fx(function)(*given), make_fx(function, tracing_mode="fake")(*given), make_fx(function, tracing_mode="symbolic")(*given)):
        assert f"tartan::{op.name}" in names_of(graph)
        assert all(torch.equal(a, b) for a, b in zip(graph(*given), wanted))
    for context in (torch.enable_grad, torch.no_grad):
        with context():
            traced = torch.jit.trace(function, tuple(given), check_trace=False)
        assert f"tartan::{op.name}" in str(traced.inlined_graph)
        assert all(torch.equal(a, b) for a, b in zip(as_tuple(traced(*given)), wanted))
    meta = function(*(x.to("meta") for x in given))
    assert [(x.shape, x.dtype) for x in meta] == [(x.shape, x.dtype) for x in wanted]


@pytest.mark.parametrize("op", ARRAYS, ids=str)
def test_symbolic_tracing_ends(rng, op):
    given = tensors(op, rng)
    graph = torch.fx.symbolic_trace(lambda x: as_tuple(op.call({**given, first: x}))[0]) if (first := op.inputs[0]["name"]) else None
    assert f"tartan::{op.name}" in names_of(graph)
    assert torch.equal(graph(given[first]), as_tuple(op.call(given))[0])


@pytest.mark.parametrize("op", ARRAYS, ids=str)
def test_vmap(rng, op):
    """Of a batch of the first operand that has numbers, and of all of them."""
    function, given, _ = case(op, rng)
    places = [i for i, x in enumerate(given) if x.dtype.is_floating_point]
    for batched in (places[:1], places):
        stacked = [torch.stack([x, 0.5 * x, x.flip(-1)], dim=x.ndim // 2) if i in batched else x for i, x in enumerate(given)]
        dims = tuple(x.ndim // 2 if i in batched else None for i, x in enumerate(given))
        found = torch.func.vmap(function, in_dims=dims)(*stacked)
        each = [function(*(x.select(d, i) if d is not None else x for x, d in zip(stacked, dims))) for i in range(3)]
        for x, *y in zip(found, *each):
            assert torch.allclose(x, torch.stack(y), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("op", RECORDED, ids=str)
def test_gradients_by_torch_func(rng, op):
    function, given, names = case(op, rng)
    places = tuple(names.index(name) for name in trained(op, dict(zip(names, given))))

    def loss(*x):
        return sum((y * y).sum() for y in function(*x) if y.dtype.is_floating_point)

    leaves = [x.clone().requires_grad_(i in places) for i, x in enumerate(given)]
    wanted = torch.autograd.grad(loss(*leaves), [leaves[i] for i in places])
    for found, x in zip(torch.func.grad(loss, argnums=places)(*given), wanted):
        assert torch.allclose(found, x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("op", RECORDED, ids=str)
def test_forward_mode(rng, op):
    """J t by torch.func and by dual numbers, beside J^T u: <u, J t> is <J^T u, t>; and again of the gradient."""
    function, given, names = case(op, rng)
    places = tuple(names.index(name) for name in trained(op, dict(zip(names, given))))
    primals = tuple(given[i] for i in places)
    tangents = tuple(torch.randn_like(x) for x in primals)

    def run(*x):
        found = function(*(x[places.index(i)] if i in places else y for i, y in enumerate(given)))
        return tuple(y for y in found if y.dtype.is_floating_point)

    if _schema.PLANS[op.row["gradient"]].formula is None:
        with pytest.raises(tartan.UnsupportedError, match=f"{op.name}: it has no derivatives in forward mode"):
            torch.func.jvp(run, primals, tangents)
        return
    leaves = [x.clone().requires_grad_() for x in primals]
    results = [y for y in run(*leaves) if y.requires_grad]
    ways = [torch.randn_like(y) for y in results]
    pulled = torch.autograd.grad(results, leaves, ways)
    wanted = sum((x * t).sum() for x, t in zip(pulled, tangents))
    values, pushed = torch.func.jvp(run, primals, tangents)
    recorded = [i for i, y in enumerate(run(*leaves)) if y.requires_grad]
    assert all(torch.equal(x, y) for x, y in zip(values, run(*primals)))
    found = sum((pushed[i] * u).sum() for i, u in zip(recorded, ways))
    assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-12)
    with forward_ad.dual_level():
        duals = run(*(forward_ad.make_dual(x, t) for x, t in zip(primals, tangents)))
        for i in recorded:
            assert torch.allclose(forward_ad.unpack_dual(duals[i]).tangent, pushed[i], rtol=1e-12, atol=1e-14)

    def loss(*x):
        return sum((y * y).sum() for y in run(*x))

    gradient = torch.func.grad(loss, argnums=tuple(range(len(places))))
    along = torch.func.jvp(gradient, primals, tangents)[1]
    again = [x.clone().requires_grad_() for x in primals]
    first = torch.autograd.grad(loss(*again), again, create_graph=True)
    inner = sum((g * t).sum() for g, t in zip(first, tangents))
    if inner.requires_grad:
        for x, y in zip(along, torch.autograd.grad(inner, again, materialize_grads=True)):  # the Hessian is symmetric
            assert torch.allclose(x, y, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("op", RECORDED, ids=str)
def test_opcheck(rng, op):
    plan = _schema.PLANS[op.name]
    given = tensors(op, rng)
    for name in trained(op, given):
        given[name].requires_grad_()
    operands = [given.get(a.name) for a in plan.op.inputs]
    images = (0, False) if plan.op.images else ()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(plan.operator, (*operands, *_defaults(op, plan), *images, 0), test_utils=tests)


@pytest.mark.parametrize("name", ["layer_norm", "softmax", "swiglu", "cross_entropy", "top_k", "lstm_gates"])
def test_compile_and_export(rng, name):
    op = next(op for op in OPS if op.name == name)
    function, given, names = case(op, rng)
    places = [names.index(n) for n in trained(op, dict(zip(names, given)))]
    leaves = [x.clone().requires_grad_(i in places) for i, x in enumerate(given)]
    plan = _schema.PLANS[name]
    torch.library.opcheck(
        plan.operator, (*(dict(zip(names, leaves)).get(a.name) for a in plan.op.inputs), *_defaults(op, plan), 0),
        test_utils="test_aot_dispatch_dynamic",
    )  # fmt: skip
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
    wanted, found = function(*leaves), compiled(*leaves)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted))
    for a, b in zip(torch.autograd.grad(total(found), [leaves[i] for i in places]), torch.autograd.grad(total(wanted), [leaves[i] for i in places])):
        assert torch.allclose(a, b)

    class Module(torch.nn.Module):
        def forward(self, *x):
            return function(*x)

    program = torch.export.export(Module(), tuple(given))
    assert f"tartan.{name}.default" in str(program.graph)
    assert all(torch.equal(a, b) for a, b in zip(program.module()(*given), function(*given)))


def _defaults(op, plan):
    kinds = {"real": float, "whole": int, "flag": lambda t: bool(int(t)), "word": str}
    options = {o["name"]: o["default"] for o in op.options}
    kinds["seed"] = lambda t: torch.tensor(int(t))
    return [None if o.computed or o.kind in ("sizes", "windows") else kinds["seed" if o.name == "seed" else o.kind](options[o.name]) for o in plan.op.options]


def test_products(rng):
    layout = tartan.Layout.from_mask(rng.random((3, 4)) < 0.7, 4)
    values = torch.from_numpy(rng.standard_normal((layout.blocks, 4, 4)))
    w = tartan.BlockMatrix(layout, values)
    x, y, gates = torch.randn(16, 3).double(), torch.randn(3, 12).double(), torch.rand(layout.blocks).double()
    functions = [
        lambda x: w @ x, lambda x: x.mT @ w.T, lambda x: w @ x[:, 0], lambda x: x[:, 0] @ w.T, lambda x: tartan.spmm(w, x, alpha=2),
        lambda x: tartan.spmm(layout, x, values=values, gates=gates), lambda x: w.T @ (w @ x), lambda x: tartan.spmm(w, y, side="right") * x.sum(),
    ]  # fmt: skip
    for function in functions:
        wanted = function(x)
        for context in (torch.enable_grad, torch.no_grad):
            with context():
                assert torch.allclose(torch.jit.trace(function, (x,), check_trace=False)(x), wanted)
        assert torch.allclose(make_fx(function)(x)(x), wanted)
        assert function(x.to("meta")).shape == wanted.shape if function is functions[0] else True
        assert torch.allclose(torch.func.vmap(function)(torch.stack([x, x]))[1], wanted)
        leaf = x.clone().requires_grad_()
        assert torch.allclose(torch.func.grad(lambda x: function(x).square().sum())(x), torch.autograd.grad(function(leaf).square().sum(), leaf)[0])
        assert torch.autograd.gradgradcheck(function, (leaf,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            assert torch.autograd.forward_ad.unpack_dual(function(dual)).tangent is not None
    graph = torch.fx.symbolic_trace(lambda x: w @ x)
    assert torch.allclose(graph(x), w @ x)
    with pytest.raises(tartan.ArgumentError, match="out is given, expected none where PyTorch"):
        make_fx(lambda x: tartan.spmm(w, x, out=torch.empty(12, 3).double()))(x)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["vector", "matrix", "batch"])
@pytest.mark.parametrize("given", ["matrix", "values"])
def test_products_of_heads(rng, side, kind, given):
    """Traced, transformed and compiled, of factors that heads share, too. A trace is checked by another, which is the same."""
    layout = tartan.Layout.from_mask(rng.random((3, 2, 3)) < 0.7, 4)
    values = torch.from_numpy(rng.standard_normal((layout.blocks, 4, 4)))
    w = tartan.BlockMatrix(layout, values)
    lead = {"vector": (), "matrix": (5,), "batch": (2, 3, 5)}[kind]
    shape = (*lead, 8) if side == "right" else (*lead[:-1], 12, *lead[-1:])
    x, values = torch.randn(shape).double(), values.clone().requires_grad_()

    def function(x):
        if given == "matrix":
            return tartan.spmm(w, x, side=side, alpha=2)
        return tartan.spmm(layout, x, values=values, side=side, alpha=2)

    wanted = function(x)
    dense = torch.from_numpy(w.toarray())
    assert torch.allclose(wanted, 2 * (dense @ x if side == "left" else x @ dense))
    with torch.no_grad():
        constant = values.detach()  # of a trace
        traced = torch.jit.trace(lambda x: function(x) if given == "matrix" else tartan.spmm(layout, x, values=constant, side=side, alpha=2), (x,))
        assert torch.allclose(traced(x), wanted)
    assert torch.allclose(make_fx(function)(x)(x), wanted)
    assert torch.allclose(torch.fx.symbolic_trace(function)(x), wanted)
    assert function(x.to("meta")).shape == wanted.shape if given == "matrix" else True
    assert torch.allclose(torch.func.vmap(function)(torch.stack([0 * x, x]))[1], wanted)
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(leaf).square().sum(), leaf)
    assert torch.allclose(torch.func.grad(lambda x: function(x).square().sum())(x), slope)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")(leaf)
    assert torch.allclose(compiled, wanted)
    assert torch.allclose(torch.autograd.grad(compiled.square().sum(), leaf)[0], slope)
    if given == "matrix":
        operator, number = torch.ops.tartan.product.default, tartan.torch._held.number_of(w)
        torch.library.opcheck(operator, (leaf, number, side == "right", False, 2.0))
        batched = torch.func.vmap(lambda x: operator(x, number, side == "right", False, 2.0))(torch.stack([0 * x, x]))
        assert torch.allclose(batched[1], wanted)


def test_convolutions(rng):
    conv = tartan.BlockConv(tartan.Layout.from_mask([[1, 1], [0, 1]], 2), (3, 3), padding=1)
    x = torch.randn(2, 4, 5, 4).double()
    values = torch.from_numpy(conv.filter(rng.standard_normal((4, 4, 3, 3))).values)
    bias, gain = torch.randn(2, 4).double()

    def function(x, values, bias):
        return conv(x, values, gain=gain, bias=bias, relu=True)

    wanted = function(x, values, bias)
    for context in (torch.enable_grad, torch.no_grad):
        with context():
            assert torch.allclose(torch.jit.trace(function, (x, values, bias), check_trace=False)(x, values, bias), wanted)
    assert torch.allclose(make_fx(function)(x, values, bias)(x, values, bias), wanted)
    assert torch.allclose(torch.func.vmap(lambda x: function(x, values, bias))(torch.stack([x, x]))[1], wanted)
    small = [x[:1, :, :3, :2].clone().requires_grad_(), values.requires_grad_(), bias.requires_grad_()]
    assert torch.autograd.gradgradcheck(lambda *given: conv(given[0], given[1], bias=given[2]), small)
    with torch.no_grad():
        parameter = torch.nn.Parameter(values)
        assert torch.equal(conv(x, parameter, gain=gain, bias=bias, relu=True), wanted)
        assert conv.to_dense(parameter).shape == (4, 4, 3, 3)
        conv.normalize(parameter)


@pytest.mark.parametrize("op", UPDATING, ids=str)
def test_what_changes_operands(rng, op):
    """The operator does the same as the function, on the operands themselves."""
    if op.has_lists or not op.arrays_only:
        pytest.skip("lists")
    given = tensors(op, rng)
    other = {name: x.clone() for name, x in given.items()}
    op.call(given)
    make_fx(lambda x: op.call({**other, op.inputs[0]["name"]: x}))(other[op.inputs[0]["name"]])
    assert all(torch.equal(given[name], other[name]) for name in given)


def test_lists(rng):
    parameters, gradients, means = ([torch.randn(4, 3) for _ in range(2)] for _ in range(3))
    copies = [[x.clone() for x in one] for one in (parameters, means)]
    tartan.lion(parameters, gradients, means)
    graph = make_fx(lambda p, g, m: tartan.lion(p, g, m))(copies[0], gradients, copies[1])
    assert "tartan::lion" in names_of(graph)
    assert all(torch.equal(a, b) for one, other in zip((parameters, means), copies) for a, b in zip(one, other))
    assert torch.equal(make_fx(lambda x: tartan.add_n([x, x]))(parameters[0])(parameters[1]), 2 * parameters[1])


def test_transforms_keep_nothing(rng):
    """Calls under torch.func hold layouts no longer than their results need; those in graphs stay."""
    layout = tartan.Layout.from_mask(rng.random((3, 4)) < 0.7, 4)
    square = tartan.Layout.pattern("banded", (16, 16), 4)
    w, values = tartan.BlockMatrix(layout, torch.randn(layout.blocks, 4, 4)), torch.randn(layout.blocks, 4, 4)
    conv = tartan.BlockConv(tartan.Layout.pattern("dense", (4, 4), 4), (1, 1))
    bank = torch.randn(conv.layout.blocks, 4, 4)
    x, q, image = torch.randn(16, 3), torch.randn(1, 2, 16, 4), torch.randn(1, 4, 5, 5)
    cases = [
        (lambda x: w @ x, x, "grad jvp"), (lambda x: tartan.spmm(layout, x, values=values), x, "grad jvp"),
        (lambda x: tartan.spmm_gradient(w, x, torch.ones(12, 3), wrt="b").b, x, ""),
        (lambda q: tartan.attention(q, q, q, square), q, "grad"), (lambda y: conv(y, bank), image, "grad jvp"),
        (BlockSparseLinear(3, 8, density=0.5, block=1), x, "grad jvp"),
        (BlockSparseConv2d(4, 4, 1, density=1, block=2), image, "grad jvp"),
        (lambda q, layer=BlockSparseAttention(square): layer(q, q, q), q, "grad"),
    ]  # fmt: skip
    for run, x, transforms in cases:
        gc.collect()
        before = len(_cells._living), len(_cells._kept)
        wanted = run(x)
        if "grad" in transforms:
            torch.func.grad(lambda x: run(x).square().sum())(x)
        assert torch.allclose(torch.func.vmap(run)(torch.stack([x, x]))[1], wanted, atol=1e-5)
        if "jvp" in transforms:
            torch.func.jvp(run, (x,), (x,))
        gc.collect()
        assert (len(_cells._living), len(_cells._kept)) == before
    result, pull = torch.func.vjp(lambda x: w @ x, x)  # the backward pass, too
    assert len(_cells._living) == before[0] + 1 and pull(result)[0].shape == x.shape
    del pull, result
    gc.collect()
    assert len(_cells._living) == before[0]
    make_fx(lambda x: w @ x)(x)
    assert len(_cells._living) == before[0] + 1


def test_what_is_refused():
    x = torch.ones(2, 3)
    with pytest.raises(tartan.ArgumentError, match="softmax: out is given, expected none where PyTorch traces"):
        make_fx(lambda x: tartan.softmax(x, out=torch.empty(2, 3)))(x)
    q = torch.ones(1, 1, 4, 2)
    layout = tartan.Layout.pattern("dense", (4, 4), 2)
    for function, given in (
        (tartan.quantize, x), (lambda x: tartan.adam([x], [x], [x], [x], step=1), x), (lambda q: tartan.attention(q, q, q, layout), q),
    ):  # fmt: skip
        with pytest.raises(tartan.UnsupportedError, match="no derivatives in forward mode"):
            torch.func.jvp(function, (given,), (given,))
        with forward_ad.dual_level(), pytest.raises(tartan.UnsupportedError, match="no derivatives in forward mode"):
            function(forward_ad.make_dual(given, given))
    w = tartan.BlockMatrix.from_dense(torch.ones(2, 2), 1)
    weight = torch.ones(4, 3)
    calls = (
        lambda x: tartan.BlockMatrix.from_dense(x, 1), lambda x: tartan.BlockMatrix(w.layout, x.view(4, 1, 1)), lambda x: w * x,
        lambda x: tartan.sddmm(w, x, x), lambda x: tartan.growth_score(x, x, 1),
        lambda x: tartan.torch.linear_cross_entropy(x, weight[:, :2], torch.tensor([0, 1])),
    )  # fmt: skip
    for call in calls:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.ones(2, 2), torch.ones(2, 2))
            with pytest.raises(tartan.UnsupportedError, match="has no derivatives in forward mode"):
                call(dual)
            call(dual.detach())
    with pytest.raises(tartan.UnsupportedError, match="result is a matrix"):
        layout = tartan.Layout.pattern("dense", (4, 4), 2)
        make_fx(lambda x: tartan.sddmm_gradient(tartan.BlockMatrix.zeros(layout), x, x.T).x)(torch.ones(4, 3).double()) and tartan.block_softmax
        make_fx(lambda x: tartan.spmm_gradient(tartan.BlockMatrix.zeros(layout), x, x).a)(torch.ones(4, 3).double())


def test_compiled_products_and_attention(rng):
    layout = tartan.Layout.from_mask(rng.random((3, 4)) < 0.7, 4)
    other = tartan.Layout.from_mask(np.eye(3, 4), 4)
    w, u = (tartan.BlockMatrix(one, torch.randn(one.blocks, 4, 4)) for one in (layout, other))
    x, values = torch.randn(16, 3, requires_grad=True), torch.randn(layout.blocks, 4, 4, requires_grad=True)

    def compiled(function, *given):
        torch._dynamo.reset()
        found = torch.compile(function, fullgraph=True, backend="aot_eager")
        leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
        for _ in range(2):
            ours, theirs = found(*given), function(*given)
            assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
            for a, b in zip(torch.autograd.grad(ours.square().sum(), leaves), torch.autograd.grad(theirs.square().sum(), leaves)):
                assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)
        return found

    product = compiled(lambda w, x: tartan.spmm(w, x, alpha=2), w, x)
    assert torch.allclose(product(u, x), 2 * (u @ x), atol=1e-5)  # another matrix is another constant
    compiled(lambda x: tartan.spmm(w, x.mT, side="right", transpose=True), x)
    compiled(lambda x: tartan.spmm(w.T, tartan.relu(tartan.spmm(w, x))), x)
    compiled(lambda x, values: tartan.softmax(tartan.spmm(layout, x, values=values)), x, values)
    square = tartan.Layout.pattern("local", (32, 32), 8, window=1)
    mask = tartan.BlockMask.from_rule(square, lambda q, k, head: q >= k)
    q = torch.randn(2, 3, 32, 8, requires_grad=True)
    compiled(lambda q: tartan.attention(q, q, q, square), q)
    compiled(lambda q: tartan.attention(q, q, q, square, mask=mask), q)

    class Module(torch.nn.Module):
        def forward(self, x):
            return tartan.spmm(w, x)

    program = torch.export.export(Module(), (x.detach(),))
    assert torch.allclose(program.module()(x.detach()), w @ x.detach(), atol=1e-6)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_compiled_convolutions(rng, last, transposed):
    """Also exported, and traced for images of any size."""
    conv = tartan.BlockConv(
        tartan.Layout.from_mask([[1, 1], [0, 1]], (2, 3)), (3, 2), padding=((1, 0), (1, 2)), stride=2, transposed=transposed, channels_last=last
    )
    shape = (5, 7, conv.in_channels) if last else (conv.in_channels, 5, 7)
    x = torch.from_numpy(rng.standard_normal((2, *shape)))
    values = torch.from_numpy(rng.standard_normal((conv.layout.blocks, *conv.layout.block_shape)))
    gain, bias = torch.from_numpy(rng.standard_normal((2, conv.out_channels)))
    given = [y.requires_grad_() for y in (x, values, gain, bias)]

    def function(x, values, gain, bias):
        return conv(x, values, gain=gain, bias=bias, relu=True)

    wanted = function(*given)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(*given), wanted) and torch.allclose(compiled(x[0], *given[1:]), wanted[0])
    for a, b in zip(torch.autograd.grad(compiled(*given).square().sum(), given), torch.autograd.grad(wanted.square().sum(), given)):
        assert torch.allclose(a, b)

    class Module(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    program = torch.export.export(Module(), tuple(given))
    assert torch.allclose(program.module()(*given), wanted)
    graph = make_fx(function, tracing_mode="symbolic")(*given)
    longer = torch.cat([x, x], 2)
    assert torch.allclose(graph(longer, *given[1:]), function(longer, *given[1:]))
    size = tuple(n + 1 for n in conv.output_size((5, 7))) if transposed else None
    assert torch.allclose(torch.compile(lambda x: conv(x, values, size=size), fullgraph=True, backend="aot_eager")(x), conv(x, values, size=size))
    words = "active, windows, out or context is given, expected none where PyTorch compiles"
    context = tartan.default_context()
    with pytest.raises(Exception, match=words):
        torch.compile(lambda x: conv(x, values, context=context), fullgraph=True, backend="aot_eager")(x)


def test_traces_compute_the_scale_of_attention_in_full(rng):
    """Sizes are tensors under torch.jit.trace, whose roots are of float32."""
    layout = tartan.Layout.pattern("dense", (6, 6), 2)
    q, k, v = (torch.from_numpy(rng.standard_normal((1, 2, 6, 9))) for _ in range(3))
    with torch.no_grad():
        traced = torch.jit.trace(lambda q, k, v: tartan.attention(q, k, v, layout), (q, k, v))
        assert torch.equal(traced(q, k, v), tartan.attention(q, k, v, layout))
        module = tartan.torch.BlockSparseAttention(layout)
        assert torch.equal(torch.jit.trace(module, (q, k, v))(q, k, v), module(q, k, v))


def test_products_of_blocks_of_different_sizes(rng):
    """As of equal ones; the gradient is 0 in what values have beyond a block."""
    layout = tartan.Layout.from_mask(np.ones((3, 2)), rows=[0, 2, 4, 8], cols=[0, 4, 8])
    values = torch.from_numpy(rng.standard_normal((layout.blocks, 4, 4)))
    w = tartan.BlockMatrix(layout, values)
    dense, x = torch.from_numpy(w.toarray()), torch.from_numpy(rng.standard_normal((8, 3)))
    for function in (lambda x, v: tartan.spmm(layout, x, values=v), lambda x, v: tartan.spmm(w, x)):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for call in (function, compiled, torch.func.vmap(function, (None, 0))):
            found = call(x, values[None] if call is not function and call is not compiled else values)
            assert torch.allclose(found, dense @ x)
    leaf = values.clone().requires_grad_()
    wanted = torch.from_numpy(tartan.sddmm(layout, np.ones((8, 3)), x.numpy().T.copy()).values)

    def loss(v):
        return tartan.spmm(layout, x, values=v).sum()

    for call in (loss, torch.compile(loss, backend="aot_eager")):
        (found,) = torch.autograd.grad(call(leaf), leaf)
        assert torch.allclose(found, wanted) and found[0, 2:].abs().max() == 0
