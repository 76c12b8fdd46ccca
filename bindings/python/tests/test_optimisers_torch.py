# SPDX-License-Identifier: Apache-2.0
"""Optimisers beside those of PyTorch, over 20 steps."""

import pytest

import tartan

torch = pytest.importorskip("torch")

SHAPES = [(7,), (16, 9), (3, 4, 5), ()]


def model(dtype=torch.float32):
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]


def gradients(step):
    torch.manual_seed(100 + step)
    return [torch.randn(shape) for shape in SHAPES]


def compare(optimiser, ours, dtype=torch.float32, tolerance=2e-6):
    """Both train the same model with the same gradients."""
    theirs, mine = model(dtype), model(dtype)
    torch_optimiser = optimiser(theirs)
    for step in range(1, 21):
        found = [g.to(dtype) for g in gradients(step)]
        for p, g in zip(theirs, found):
            p.grad = g.clone()
        torch_optimiser.step()
        ours(mine, found, step)
    for p, q in zip(theirs, mine):
        torch.testing.assert_close(q, p, rtol=tolerance, atol=tolerance)


def zeros(parameters):
    return [torch.zeros_like(p) for p in parameters]


@pytest.mark.parametrize("decay", [0, 0.1])
def test_adamw(decay):
    state = [zeros(model()), zeros(model())]

    def ours(parameters, found, step):
        tartan.adam(parameters, found, *state, rate=0.01, weight_decay=decay, step=step)

    compare(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=decay), ours)


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True}],
    ids=str,
)
def test_sgd(options):
    velocities = zeros(model()) if "momentum" in options else None

    def ours(parameters, found, step):
        tartan.sgd(parameters, found, rate=0.05, velocities=velocities, step=step, **options)

    compare(lambda p: torch.optim.SGD(p, lr=0.05, **options), ours)


def test_adam_in_float64():
    state = [zeros(model(torch.float64)), zeros(model(torch.float64))]

    def ours(parameters, found, step):
        tartan.adam(parameters, found, *state, rate=0.01, step=step)

    compare(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0), ours, torch.float64, 1e-12)


@pytest.mark.skipif(not hasattr(torch.optim, "Adafactor"), reason="PyTorch has no Adafactor")
@pytest.mark.parametrize("decay", [0, 0.1])
def test_adafactor(decay):
    rows = [torch.zeros(p.shape[:-1] if p.ndim > 1 else p.shape) for p in model()]
    cols = [torch.zeros((*p.shape[:-2], p.shape[-1]) if p.ndim > 1 else (0,)) for p in model()]

    def ours(parameters, found, step):
        rate = min(0.01, step**-0.5)
        tartan.adafactor(parameters, found, rows, cols, rate=rate, power=0.8, relative=1e-3, weight_decay=decay * 0.01 / rate, step=step)

    compare(lambda p: torch.optim.Adafactor(p, lr=0.01, weight_decay=decay), ours)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has no Muon")
@pytest.mark.parametrize("match_rms", [False, True])
def test_muon(match_rms):
    """PyTorch iterates in bf16, so a few steps are compared, by what they have in common."""
    theirs, mine = ([torch.nn.Parameter(torch.zeros(shape)) for shape in ((16, 9), (8, 24))] for _ in range(2))
    means = [torch.zeros_like(p) for p in mine]
    optimiser = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw" if match_rms else "original")
    for step in range(1, 4):
        torch.manual_seed(step)
        found = [torch.randn_like(p) for p in mine]
        for p, g in zip(theirs, found):
            p.grad = g.clone()
        optimiser.step()
        tartan.muon(mine, found, means, rate=0.1, weight_decay=0.1, match_rms=match_rms)
    for p, q in zip(theirs, mine):
        assert torch.linalg.vector_norm(p - q) < 0.03 * torch.linalg.vector_norm(p)


def test_clipping_is_that_of_torch():
    found = gradients(1)
    norm, scale = tartan.global_norm(found, clip=0.5, return_scale=True)
    wanted = torch.linalg.vector_norm(torch.cat([g.flatten() for g in found]))
    assert isinstance(norm, torch.Tensor) and norm.shape == (1,)
    torch.testing.assert_close(norm[0], wanted)
    torch.testing.assert_close(scale[0], 0.5 / wanted)


def test_bfloat16_parameters_with_float32_moments():
    parameters = [p.detach().bfloat16() for p in model()]
    wide = [p.float() for p in parameters]
    state, wide_state = [zeros(wide), zeros(wide)], [zeros(wide), zeros(wide)]
    found = gradients(1)
    tartan.adam(parameters, found, *state, rate=0.01)
    tartan.adam(wide, found, *wide_state, rate=0.01)
    for p, q in zip(parameters, wide):
        assert torch.equal(p, q.bfloat16())
