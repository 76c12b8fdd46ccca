# SPDX-License-Identifier: Apache-2.0
"""tartan.torch on a real GPU."""

import copy

import pytest
from device_support import HAS_GPU
from ranks_support import run_two_ranks

import tartan

pytestmark = pytest.mark.skipif(not HAS_GPU, reason="no GPU here")
DTYPES = ["float32", "float16", "bfloat16"]
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


@pytest.fixture
def modules(torch):
    torch.manual_seed(7)
    torch._dynamo.reset()
    import tartan.torch

    return tartan.torch


def model_of(torch, modules, dtype=None):
    options = {"device": "cuda", "dtype": dtype and getattr(torch, dtype)}
    return torch.nn.Sequential(
        modules.BlockSparseLinear(256, 512, density=0.3, block=32, **options), torch.nn.GELU(),
        modules.BlockSparseLinear(512, 200, density=0.3, block=32, **options),
    )  # fmt: skip


def gradients(model, x):
    model.zero_grad()
    y = model(x)
    y.float().square().mean().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [(64,), (3, 40), (0,), ()])
def test_equals_the_dense_layer(torch, modules, dtype, lead):
    model = model_of(torch, modules, dtype)
    dense = copy.deepcopy(model)
    modules.unpatch_model(dense)
    x = torch.randn(*lead, 256, device="cuda", dtype=getattr(torch, dtype))
    found, wanted = gradients(model, x), gradients(dense, x)
    torch.testing.assert_close(found[0], wanted[0], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    if 0 not in lead:
        from tartan.torch._linear import blocks_of

        for i, layer in ((1, model[0]), (3, model[2])):
            right = blocks_of(wanted[i], layer.layout)
            assert (found[i].float() - right.float()).norm() <= 4 * TOLERANCE[dtype] * right.float().norm() + 1e-6
            assert (found[i + 1].float() - wanted[i + 1].float()).norm() <= 4 * TOLERANCE[dtype] * wanted[i + 1].float().norm() + 1e-6


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiles(torch, modules, mode):
    model, x = model_of(torch, modules), torch.randn(64, 256, device="cuda")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype):
            wanted = gradients(model, x)
            compiled = torch.compile(model, fullgraph=True, mode=mode)
            for _ in range(3):
                found = gradients(compiled, x)
        for ours, right in zip(found, wanted):
            torch.testing.assert_close(ours, right, rtol=5e-2, atol=5e-2)


def test_opcheck(torch, modules):
    from tartan.torch import _operators as operators

    layer = modules.BlockSparseLinear(64, 96, density=0.5, block=16, device="cuda")
    x, grad = (torch.randn(8, n, device="cuda", requires_grad=True) for n in (64, 96))
    number = layer._cell.number
    for operator, given in ((operators.linear, (x, layer.values, number, 96)), (operators.input_gradient, (grad, layer.values, number, 64)),
                            (operators.values_gradient_op, (x, grad, number, layer.values.shape))):  # fmt: skip
        assert set(torch.library.opcheck(operator, given).values()) == {"SUCCESS"}


def test_cuda_graphs(torch, modules):
    """A captured step of training does what the same step does without a graph."""
    pair = [model_of(torch, modules)]
    pair.append(copy.deepcopy(pair[0]))
    x = torch.randn(64, 256, device="cuda")
    optimizers = [torch.optim.AdamW(m.parameters(), 1e-3, capturable=True) for m in pair]

    def step(model, optimizer):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(pair[0], optimizers[0])
    torch.cuda.current_stream().wait_stream(side)
    for _ in range(3):
        step(pair[1], optimizers[1])
    graph = torch.cuda.CUDAGraph()
    optimizers[0].zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step(pair[0], optimizers[0])
    for _ in range(5):
        x.normal_()
        graph.replay()
        wanted = step(pair[1], optimizers[1])
        assert torch.equal(loss, wanted)
    for ours, right in zip(pair[0].parameters(), pair[1].parameters()):
        assert torch.equal(ours, right)


@pytest.mark.parametrize("growth, norm", [("score", "gradient"), ("score", "l2"), ("random", "gradient")])
def test_layouts_change(torch, modules, growth, norm):
    model = model_of(torch, modules)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    sparsifier = modules.Sparsifier(model, optimizer, density=0.2, end=9, every=3, swap=0.3, growth=growth, growth_norm=norm, fill="normal")
    moved = 0
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(torch.randn(64, 256, device="cuda")).float().square().mean()
        loss.backward()
        optimizer.step()
        moved += sum(change.moved for change in sparsifier.step())
    assert moved > 0 and model[0].density == pytest.approx(0.2, abs=0.01)
    dense, x = copy.deepcopy(model), torch.randn(8, 256, device="cuda")
    modules.unpatch_model(dense)
    torch.testing.assert_close(model(x), dense(x), rtol=1e-3, atol=1e-3)


def test_gates_learn_as_on_the_cpu(torch, modules):
    runs = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(3)
        layer = modules.BlockSparseLinear(128, 64, density=1, block=16, dtype=torch.float64).to(device)
        optimizer = torch.optim.AdamW(layer.parameters(), 1e-2)
        sparsifier = modules.Sparsifier(layer, optimizer, score="gate", l0=5.0, gate_rate=0.3, begin=20, every=5)
        x = torch.randn(64, 128, dtype=torch.float64).to(device)
        for _ in range(30):
            optimizer.zero_grad()
            (layer(x) - x[:, :64]).square().mean().backward()
            optimizer.step()
            sparsifier.step()
        runs.append((layer.layout, layer.gates.cpu(), layer.values.detach().cpu()))
    assert runs[0][0] == runs[1][0] and runs[0][0].density < 1
    for a, b in zip(runs[0][1:], runs[1][1:]):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_gates_wait_for_the_backward_pass_alone(torch, modules):
    """`observe` waits for nothing, and `step` for nothing that came after it."""
    model = model_of(torch, modules, "bfloat16")
    sparsifier = modules.Sparsifier(model, score="gate", l0=1.0, begin=1000)

    def busy():
        torch.cuda._sleep(2_000_000_000)  # cycles: about a second
        end = torch.cuda.Event()
        end.record()
        return end

    for _ in range(2):  # the first step makes what the second keeps
        model(torch.randn(8, 256, device="cuda", dtype=torch.bfloat16)).float().sum().backward()
        torch.cuda.synchronize()
        backward = busy()
        sparsifier.observe()
        waited = [backward.query()]
        optimizer = busy()
        sparsifier.step()
        waited += [not backward.query(), optimizer.query()]
    assert waited == [False, False, False]


def test_convolutions_and_attention(torch, modules):
    conv = modules.BlockSparseConv2d(64, 64, 3, padding=1, density=0.5, block=16).cuda()
    dense = conv.to_conv2d()
    x = torch.randn(2, 64, 12, 10, device="cuda").to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16):
        found, wanted = conv(x), dense(x)
        compiled = torch.compile(conv, fullgraph=True)(x)
    torch.testing.assert_close(found, wanted, rtol=5e-2, atol=5e-2)
    torch.testing.assert_close(compiled, wanted, rtol=5e-2, atol=5e-2)
    layout = tartan.Layout.pattern("local", (256, 256), 64, window=1)
    layer = modules.BlockSparseAttention(layout, embed_dim=256, heads=4, causal=True, dropout=0.1, device="cuda")
    x = torch.randn(2, 256, 256, device="cuda")
    results = []
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(3)
        with torch.autocast("cuda", torch.bfloat16):
            results.append(run(x))
    torch.testing.assert_close(*results, rtol=2e-2, atol=2e-2)


def test_modules_move(torch, modules):
    layer, x = modules.BlockSparseLinear(64, 64, density=0.5, block=16), torch.randn(4, 64)
    wanted = layer(x)
    there = layer.cuda()
    assert there._tag.is_cuda
    torch.testing.assert_close(there(x.cuda()).cpu(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(there.cpu()(x), wanted)
    again = modules.BlockSparseLinear(64, 64, density=0.5, block=16, device="cuda")
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again(x.cuda()).cpu(), wanted, rtol=1e-4, atol=1e-4)


NCCL = """
import sys, torch, torch.distributed as dist
from tartan.torch import BlockSparseLinear, Sparsifier
rank = int(sys.argv[1])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=2)
for options in (dict(swap=0.3, end=6, every=2, decay="constant", fill="normal"), dict(score="gate", l0=50.0, gate_rate=1.0, begin=4, every=2)):
    torch.manual_seed(5)
    model = torch.nn.Sequential(BlockSparseLinear(64, 64, density=0.5, block=8), torch.nn.GELU(), BlockSparseLinear(64, 16, density=0.5, block=8)).cuda()
    both = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    sparsifier = Sparsifier(model, optimizer, **options)
    torch.manual_seed(rank)
    changed = 0
    for _ in range(7):
        optimizer.zero_grad()
        both(torch.randn(8, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        changes = sparsifier.step()
        changed += sum(change.moved + change.pruned for change in changes)
        if any(change.pruned for change in changes):  # parameters have other shapes
            both = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    assert changed > 4
    for tensor in (*model.parameters(), *(torch.from_numpy(m.layout.mask()).int().cuda() for m in (model[0], model[2]))):
        others = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(others, tensor.detach())
        assert torch.equal(*others)
dist.destroy_process_group()
print("equal")
"""


def test_all_ranks_choose_the_same_over_nccl(torch):
    if torch.cuda.device_count() < 2 or not torch.distributed.is_nccl_available():
        pytest.skip("needs two GPUs and NCCL")
    run_two_ranks(NCCL)
