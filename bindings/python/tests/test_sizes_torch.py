# SPDX-License-Identifier: Apache-2.0
"""Blocks of different sizes in PyTorch."""

import numpy as np
import pytest

import tartan

torch = pytest.importorskip("torch")
import tartan.torch  # noqa: E402


def operands(seed=1):
    rng = np.random.default_rng(seed)
    layout = tartan.Layout.from_mask([[1, 0, 1], [1, 1, 0]], rows=[0, 3, 5], cols=[0, 4, 5, 12])
    dense = rng.standard_normal(layout.shape)
    values = torch.tensor(tartan.BlockMatrix.from_dense(dense, layout=layout).values, requires_grad=True)
    return layout, values, torch.tensor(rng.standard_normal((12, 4)), requires_grad=True)


@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_are_those_of_differences(transpose):
    layout, values, x = operands()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True) if transpose else x
    inside = (values != 0).detach()

    def product(v, x):
        return tartan.spmm(layout, x, values=v * inside, transpose=transpose)

    assert torch.autograd.gradcheck(product, (values, x))
    assert torch.autograd.gradgradcheck(product, (values, x))
    tartan.spmm(layout, x, values=values, transpose=transpose).sum().backward()
    assert bool((values.grad[~inside] == 0).all()) and bool((values.grad[inside] != 0).any())


def test_modules_refuse_them():
    layout, _, _ = operands()
    with pytest.raises(tartan.UnsupportedError, match="blocks of different sizes, which modules do not take"):
        tartan.torch.BlockSparseLinear(12, 5, layout=layout)
    layer = tartan.torch.BlockSparseLinear(12, 5, layout=tartan.Layout.pattern("dense", (5, 12), (3, 7)))
    with pytest.raises(tartan.UnsupportedError, match="blocks of different sizes, which modules do not take"):
        layer.set_layout(layout)


def test_layouts_and_matrices_in_checkpoints(tmp_path):
    layout, values, _ = operands()
    matrix = tartan.BlockMatrix(layout, values.detach().numpy())
    torch.save({"layout": layout, "matrix": matrix}, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt", weights_only=True)
    assert back["layout"] == layout and np.array_equal(back["matrix"].toarray(), matrix.toarray())
