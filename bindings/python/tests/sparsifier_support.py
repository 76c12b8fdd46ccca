# SPDX-License-Identifier: Apache-2.0
"""A small model whose layouts change, for tests of tartan.torch.Sparsifier."""

import torch

from tartan.torch import BlockSparseLinear


def model_of(density=0.5):
    return torch.nn.Sequential(
        BlockSparseLinear(64, 128, density=density, block=16), torch.nn.ReLU(), BlockSparseLinear(128, 32, density=density, block=16)
    )


def train(model, optimizer, sparsifier, steps, batch=16):
    changes = []
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(batch, 64)
        (model(x) - x[:, :32]).square().mean().backward()
        optimizer.step()
        changes.append(sparsifier.step())
    return changes
