# SPDX-License-Identifier: Apache-2.0
"""Block-sparse modules for PyTorch: see docs/pytorch.md.

>>> import torch
>>> from tartan.torch import BlockSparseLinear
>>> layer = BlockSparseLinear(64, 128, density=0.5, block=16)
>>> layer(torch.ones(2, 64)).shape
torch.Size([2, 128])
"""

from tartan.torch import _compiled
from tartan.torch._attention import BlockSparseAttention
from tartan.torch._conv import BlockSparseConv2d
from tartan.torch._linear import BlockSparseLinear
from tartan.torch._losses import linear_cross_entropy
from tartan.torch._patch import PatchedLayer, PatchReport, patch_model, unpatch_model
from tartan.torch._sparse_product import sparse_product
from tartan.torch._sparsifier import Sparsifier, StructureChange

__all__ = [
    "BlockSparseAttention", "BlockSparseConv2d", "BlockSparseLinear", "PatchReport", "PatchedLayer", "Sparsifier",
    "StructureChange", "linear_cross_entropy", "patch_model", "sparse_product", "unpatch_model",
]  # fmt: skip
