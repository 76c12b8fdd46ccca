# SPDX-License-Identifier: Apache-2.0
"""Dynamic layouts on a real GPU, with masks and values of PyTorch."""

import numpy as np
import pytest
from conftest import assert_product
from device_support import DEVICE_DTYPES as DTYPES
from device_support import HAS_GPU

import tartan
from tartan import BlockMatrix, spmm

pytestmark = pytest.mark.skipif(not HAS_GPU, reason="no GPU here")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("density", [0.1, 0.6])
def test_layouts_follow_masks(torch, rng, dtype, block, density):
    grid, n = (6, 9), 64
    mask = torch.rand(2, *grid, device="cuda") < density
    layout = tartan.Layout.from_device_mask(mask, block)
    values = torch.randn(layout.blocks, block, block, device="cuda").to(getattr(torch, dtype))
    a = BlockMatrix.wrap(layout, values)
    x = torch.randn(2, grid[1] * block, n, device="cuda").to(values.dtype)
    z = torch.randn(2, grid[0] * block, n, device="cuda").to(values.dtype)
    s = BlockMatrix.zeros(layout, dtype, context="cuda")
    for _ in range(3):
        mask = torch.rand(2, *grid, device="cuda") < density
        layout.update(mask)
        fixed = tartan.Layout.from_mask(mask.cpu().numpy(), block)
        host = BlockMatrix(fixed, values[: fixed.blocks].double().cpu().numpy()).toarray()
        assert_product((a @ x).double().cpu().numpy(), host, x.double().cpu().numpy(), dtype)
        turned = spmm(a, z, transpose=True)
        assert_product(
            turned.double().cpu().numpy(), host.transpose(0, 2, 1), z.double().cpu().numpy(), dtype
        )
        tartan.sddmm(s, z, x.mT)
        got, z64, x64 = s.to_host(), *(t.double().cpu().numpy() for t in (z, x.mT))
        assert got.layout == fixed
        stored = BlockMatrix(fixed, np.ones((fixed.blocks, block, block))).toarray() != 0
        whole = np.where(stored, got.astype("float64").toarray(), z64 @ x64)
        assert_product(whole, z64, x64, dtype)


def test_masks_in_a_graph(torch, rng):
    mask = torch.rand(4, 16, 16, device="cuda") < 0.3
    layout = tartan.Layout.from_device_mask(mask, 32)
    q, k, v = (torch.randn(4, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(v)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    s = BlockMatrix.zeros(layout, "bfloat16", context=tartan.Context("cuda", stream=stream))

    def step():
        layout.update(mask)
        tartan.sddmm(s, q, k.mT)
        spmm(s, v, out=out)

    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    for density in (0.1, 0.9, 0.0):
        mask.copy_(torch.rand(4, 16, 16, device="cuda") < density)
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        fixed = tartan.Layout.from_mask(mask.cpu().numpy(), 32)
        assert layout.to_host() == fixed
        replayed = out.clone()
        with torch.cuda.stream(stream):
            step()
        stream.synchronize()
        assert torch.equal(replayed, out)
        assert density or not out.any()
