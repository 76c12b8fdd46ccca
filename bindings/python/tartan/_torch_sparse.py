# SPDX-License-Identifier: Apache-2.0
"""PyTorch's sparse tensors. PyTorch is optional and imported on first use."""

from __future__ import annotations

import importlib
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import BITS, Array, dtype_code
from tartan._errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, UnsupportedError
from tartan._frame import Block, block_shape, frame_of
from tartan._layout import Layout


def _torch() -> Any:
    return importlib.import_module("torch")


def from_torch(tensor: Any, block: Optional[Block], dtype: Any, copy: bool) -> tuple[Optional[Layout], Any]:
    """For blocks, the layout and the values as a tensor; for entries no layout, and the arguments of
    tartan_matrix_from_compressed. Repeated entries are added."""
    torch = _torch()
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentTypeError(f"tensor is of type {type(tensor).__name__}, expected a tensor of PyTorch")
    if tensor.requires_grad:
        if torch.is_grad_enabled():
            raise ArgumentError("tensor requires gradients, which a matrix does not record: use detach(), or torch.no_grad()")
        tensor = tensor.detach()
    if tensor.layout in (torch.sparse_bsr, torch.sparse_bsc):
        own = tuple(tensor.values().shape[-2:])
        if block is not None and block_shape(block) != own:
            raise ArgumentError(f"block is {block}, expected {own}, that of the tensor, or None")
        return _from_blocks(torch, tensor, own, dtype, copy)
    if tensor.layout not in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo):
        raise ArgumentTypeError(f"tensor has the layout {tensor.layout}, expected a sparse one: see BlockMatrix.from_dense")
    if block is None:
        raise ArgumentError(f"block is None, expected a size for a tensor of layout {tensor.layout}")
    if tensor.ndim not in (2, 3) or tensor.dense_dim() != 0:
        raise ShapeError(f"tensor has {tensor.ndim} dimensions, {tensor.dense_dim()} of them dense, expected 2, or 3 with a matrix for each head, and none dense")
    if tensor.ndim == 3:
        return _from_entries_of_heads(torch, tensor, block, dtype)
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce().to_sparse_csr()
    by_column = tensor.layout == torch.sparse_csc
    pointers, indices = _lists(tensor, by_column)
    code = dtype_code(tensor.dtype if dtype is None else dtype)
    given = tensor.values().cpu()
    values = given if given.dtype in (torch.float64, torch.float32, torch.float16) else given.double()
    return None, (
        frame_of(tensor.shape, block), (pointers, indices, by_column), values.numpy(), _raw.TARTAN_DUPLICATES_ADDED, code,
        _raw.TARTAN_ROW_MAJOR,
    )  # fmt: skip


def _dtype_of(torch: Any, dtype: Any) -> Any:
    """PyTorch's dtype for one of PyTorch or NumPy, or a name."""
    wanted = getattr(torch, str(dtype).rpartition(".")[2], None)
    return wanted if isinstance(wanted, torch.dtype) else getattr(torch, np.dtype(dtype).name)


def _from_entries_of_heads(torch: Any, tensor: Any, block: Block, dtype: Any) -> tuple[Layout, Any]:
    """The blocks that hold entries of a batch of matrices, and their values as a tensor on the host."""
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        head, rows, cols = (x.cpu().numpy() for x in tensor.indices())
    else:
        by_column = tensor.layout == torch.sparse_csc
        pointers, indices = _lists(tensor, by_column)
        lines = np.concatenate([np.repeat(np.arange(p.size - 1), np.diff(p)) for p in pointers])
        head = np.repeat(np.arange(tensor.shape[0]), indices.shape[-1])
        rows, cols = (indices.ravel(), lines) if by_column else (lines, indices.ravel())
    height, width = block_shape(block)
    places, ids = np.unique(np.stack([head, rows // height, cols // width]), axis=1, return_inverse=True)
    layout = Layout.from_coordinates(tensor.shape[1:], block, *places[1:], heads=places[0], n_heads=tensor.shape[0])
    wanted = tensor.dtype if dtype is None else _dtype_of(torch, dtype)
    dtype_code(wanted)
    values = torch.zeros(places.shape[1], height, width, dtype=torch.float64)
    given = tensor.values().flatten().cpu().double()
    at = (torch.from_numpy(np.ravel(x)) for x in (ids, rows % height, cols % width))
    return layout, values.index_put_(tuple(at), given, accumulate=True).to(wanted)


def _lists(tensor: Any, by_column: bool) -> tuple[Array, Array]:
    """Pointers and indices on the host."""
    both = (
        (tensor.ccol_indices(), tensor.row_indices()) if by_column else (tensor.crow_indices(), tensor.col_indices())
    )
    pointers, indices = (x.cpu().numpy().astype(np.int64) for x in both)
    return pointers, indices


def _from_blocks(torch: Any, tensor: Any, block: tuple[int, int], dtype: Any, copy: bool) -> tuple[Layout, Any]:
    by_column = tensor.layout == torch.sparse_bsc
    pointers, indices = _lists(tensor, by_column)
    if tensor.ndim not in (2, 3):
        raise ShapeError(f"tensor has {tensor.ndim} dimensions, expected 2, or 3 with one layout for each head")
    heads, count = 1 if tensor.ndim == 2 else tensor.shape[0], indices.shape[-1]
    pointers, indices = (x.reshape(heads, x.shape[-1]) for x in (pointers, indices))  # there may be no blocks
    lines = np.concatenate([np.repeat(np.arange(p.size - 1), np.diff(p)) for p in pointers])
    rows, cols = (indices.ravel(), lines) if by_column else (lines, indices.ravel())
    head = np.repeat(np.arange(heads), count)
    layout = Layout.from_coordinates(tensor.shape[-2:], block, rows, cols, heads=head, n_heads=heads)
    layout._unordered = False  # values are brought into the order of block ids here
    values = tensor.values().reshape(heads * count, *block)
    order = np.lexsort((cols, rows, head))
    if (order != np.arange(order.size)).any():
        values = values[torch.from_numpy(order).to(values.device)]
        copy = False
    if dtype is not None:
        wanted = _dtype_of(torch, dtype)
        copy = copy and wanted == values.dtype
        values = values.to(wanted)
    return layout, values.clone() if copy else values


def to_torch(matrix: Any) -> Any:
    """Convert a BlockMatrix to a BSR tensor."""
    torch, layout = _torch(), matrix.layout
    if layout.variable:
        raise UnsupportedError("the blocks differ in size, which BSR cannot hold: use matrix.toarray()")
    if any(n % b for n, b in zip((layout.rows, layout.cols), layout.block_shape)):
        raise ShapeError(
            f"shape {layout.shape} is no multiple of the block {layout.block_shape}, which BSR needs: "
            "use matrix.toarray(), or a layout of smaller blocks"
        )
    heads, grid_rows = layout.heads, layout.grid[0]
    pointers, cols = layout.row_lists()
    counts = np.diff(pointers[::grid_rows]) if grid_rows else np.zeros(heads, np.int64)
    if (counts != counts[0]).any():
        raise ShapeError(f"heads have {counts.min()} to {counts.max()} blocks, expected as many in each, as PyTorch does")
    starts = pointers[: heads * grid_rows : grid_rows] if grid_rows else np.zeros(heads, np.int64)
    each = np.stack([pointers[h * grid_rows : (h + 1) * grid_rows + 1] - start for h, start in enumerate(starts)])
    values = _tensor(torch, matrix)
    lists = (each, cols.reshape(heads, -1))
    if heads == 1:
        lists = (lists[0][0], lists[1][0])
    else:
        values = values.reshape(heads, -1, *layout.block_shape)
    on_device = (torch.from_numpy(x).to(values.device) for x in lists)
    return torch.sparse_bsr_tensor(*on_device, values, layout.shape)


def _tensor(torch: Any, matrix: Any) -> Any:
    """The values as a tensor in the same memory."""
    if matrix.device != "cpu":
        return torch.from_dlpack(matrix.values)
    if matrix.dtype_name not in BITS:
        return torch.from_numpy(matrix.values)
    dtype = getattr(torch, matrix.dtype_name, None)
    if dtype is None:
        raise DTypeError(f"this PyTorch has no {matrix.dtype_name}: use astype('float32') first")
    bits = matrix.bits
    return torch.from_numpy(bits.view(np.int16 if bits.itemsize == 2 else np.uint8)).view(dtype)
