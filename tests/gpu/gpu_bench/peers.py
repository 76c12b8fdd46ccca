# SPDX-License-Identifier: Apache-2.0
"""The others: cuBLAS through PyTorch, PyTorch's own BSR, cuSPARSE by ctypes, and the device's copy rate."""

import ctypes
import glob
import os
from ctypes import byref, c_double, c_float, c_int64, c_size_t, c_void_p

import torch

from .cases import LEFT
from .operands import random_tensor, torch_dtype
from .timing import Arm

ROW_ORDER, COL_ORDER = 2, 1
INDEX_32, BASE_ZERO = 2, 0
ELL_ALGORITHM, BSR_ALGORITHM = 13, 14
COPY_BYTES = 1 << 30


class Absent(RuntimeError):
    """The peer is not there, or cannot do this."""


def key(row):
    """Rows with equal keys share the peer's arm."""
    p = row.product
    if row.peer == "cuBLAS":
        return row.peer, p.type_name, p.dense_shape
    if row.peer == "copy":
        return (row.peer,)
    return row.peer, p


def make(row, ours, generator, stream):
    """(arm, operations or bytes of one call, note). `ours` has run: a sparse peer is checked against its result."""
    p = row.product
    if row.peer == "cuBLAS":
        return dense(p, generator)
    if row.peer == "cuBLAS bmm":
        return experts(p, generator)
    if row.peer == "copy":
        return copy(generator.device)
    if ours is None:
        raise Absent("not run: our operands could not be made")
    maker = {"PyTorch BSR": torch_bsr, "cuSPARSE BSR": cusparse_bsr, "cuSPARSE ELL": cusparse_ell}[row.peer]
    return maker(p, ours, stream)


def dense(p, generator):
    """C = A B; for y = x W^T (right, transposed) with W as a network keeps it."""
    (m, n, k), dtype = p.dense_shape, torch_dtype(p.dtype)
    work = 2.0 * m * n * k
    if p.dtype.startswith("float8"):
        a, b = random_tensor(generator, (m, k), dtype), random_tensor(generator, (n, k), dtype)
        one = torch.ones((), device=generator.device)
        return Arm([lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)]), work, ""
    cube = m == n == k
    a = random_tensor(generator, (m, k), dtype)
    b = random_tensor(generator, (n, k), dtype).t() if p.transpose and p.side != LEFT and not cube else \
        random_tensor(generator, (k, n), dtype)
    c = torch.empty((m, n), dtype=dtype, device=generator.device)

    def before():
        torch.backends.cuda.matmul.allow_tf32 = p.tf32
    return Arm([lambda: torch.matmul(a, b, out=c)], before), work, ""


def experts(p, generator):
    """The batched product of the experts, which are of equal size."""
    count, dtype = int(p.layout.split()[1]), torch_dtype(p.dtype)
    tokens, ffn, hidden = p.rows // count, p.cols // count, p.size
    m, n, k = (tokens, ffn, hidden) if p.operation == "sddmm" else \
        (ffn, hidden, tokens) if p.transpose else (tokens, hidden, ffn)
    a, b = random_tensor(generator, (count, m, k), dtype), random_tensor(generator, (count, k, n), dtype)
    c = torch.empty((count, m, n), dtype=dtype, device=generator.device)
    return Arm([lambda: torch.bmm(a, b, out=c)]), 2.0 * count * m * n * k, ""


def copy(device):
    """Bytes read and written by a large copy."""
    a = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    b = torch.empty_like(a)
    return Arm([lambda: b.copy_(a)]), 2.0 * COPY_BYTES, ""


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def agreement(result, ours):
    """A note where the peer's result is not ours."""
    want = ours.result.float()
    apart = float((result.float() - want).abs().max() / want.abs().max())
    return "" if apart < 0.02 else f"the peer's result differs ({apart:.2g})"


def torch_bsr(p, ours, _stream):
    rows, cols = (torch.from_numpy(part).to(ours.result.device) for part in (ours.block_rows, ours.block_cols))
    values, b, _ = ours.sets[0]
    counts = torch.zeros(p.rows // p.block + 1, dtype=torch.int64, device=rows.device)
    counts[1:] = torch.bincount(rows, minlength=p.rows // p.block).cumsum(0)
    a = torch.sparse_bsr_tensor(counts, cols, values, size=(p.rows, p.cols))

    def triton():
        from torch.sparse._triton_ops import bsr_dense_mm
        return bsr_dense_mm(a, b)
    return fastest([lambda: (lambda: torch.matmul(a, b)), lambda: triton], ours)


def fastest(makers, ours):
    """The arm of the fastest call that gives our result. A maker returns a call, which returns its result."""
    found, failures = [], []
    for maker in makers:
        try:
            call = maker()
            note = agreement(call(), ours)  # waits
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            found.append((bool(note), begin.elapsed_time(end), call, note))
        except Exception as error:  # whatever a peer throws: another way may do
            failures.append(first_line(error))
    if not found:
        raise Absent("; ".join(dict.fromkeys(failures)))
    _, _, call, note = min(found, key=lambda item: item[:2])
    return Arm([call]), ours.flops, note


class Cusparse:
    """As much of cuSPARSE as SpMM needs."""
    opened = None

    @classmethod
    def open(cls, stream):
        if cls.opened is None:
            cls.opened = cls(stream)
        return cls.opened

    def __init__(self, stream):
        beside = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia", "*", "lib", "libcusparse.so.*")
        for name in ["libcusparse.so.12", "libcusparse.so.13", *sorted(glob.glob(beside)), "libcusparse.so"]:
            try:
                self.c = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            raise Absent("libcusparse not found")
        self.handle = c_void_p()
        self.ok(self.c.cusparseCreate(byref(self.handle)), "cusparseCreate")
        self.ok(self.c.cusparseSetStream(self.handle, c_void_p(stream.cuda_stream)), "cusparseSetStream")

    @staticmethod
    def ok(status, what):
        if status != 0:
            raise Absent(f"{what}: status {status}")

    def bsr(self, p, pointers, cols, values, kind):
        out, grid = c_void_p(), (p.rows // p.block, p.cols // p.block)
        self.ok(self.c.cusparseCreateBsr(
            byref(out), c_int64(grid[0]), c_int64(grid[1]), c_int64(cols.numel()), c_int64(p.block), c_int64(p.block),
            c_void_p(pointers.data_ptr()), c_void_p(cols.data_ptr()), c_void_p(values.data_ptr()), INDEX_32, INDEX_32,
            BASE_ZERO, kind, ROW_ORDER), "cusparseCreateBsr")
        return out

    def ell(self, p, cols, values, kind):
        out = c_void_p()
        self.ok(self.c.cusparseCreateBlockedEll(
            byref(out), c_int64(p.rows), c_int64(p.cols), c_int64(p.block), c_int64(cols.shape[1] * p.block),
            c_void_p(cols.data_ptr()), c_void_p(values.data_ptr()), INDEX_32, BASE_ZERO, kind), "cusparseCreateBlockedEll")
        return out

    def dense(self, tensor, kind):
        row = tensor.stride(1) == 1
        out = c_void_p()
        self.ok(self.c.cusparseCreateDnMat(
            byref(out), c_int64(tensor.shape[0]), c_int64(tensor.shape[1]), c_int64(tensor.stride(0 if row else 1)),
            c_void_p(tensor.data_ptr()), kind, ROW_ORDER if row else COL_ORDER), "cusparseCreateDnMat")
        return out

    def spmm(self, sparse, b, c, kind, algorithm, keep):
        number = c_double if kind == 1 else c_float
        one, zero, size = number(1), number(0), c_size_t()
        arguments = [self.handle, 0, 0, byref(one), sparse, self.dense(b, kind), byref(zero), self.dense(c, kind), kind,
                     algorithm]
        self.ok(self.c.cusparseSpMM_bufferSize(*arguments, byref(size)), "cusparseSpMM_bufferSize")
        room = torch.empty(max(size.value, 16), dtype=torch.uint8, device=c.device)
        arguments.append(c_void_p(room.data_ptr()))

        def call():
            self.ok(self.c.cusparseSpMM(*arguments), "cusparseSpMM")
            return c
        call.keep = (one, zero, room, b, c, keep)
        return call


def orders(sparse, p, ours, keep, algorithm, stream):
    """Makers of calls with row- and with column-major dense operands."""
    library, kind = Cusparse.open(stream), 1 if p.dtype == "float64" else 0

    def maker(column):
        b, c = ours.sets[0][1], torch.zeros_like(ours.result)
        if column:
            b, c = b.t().contiguous().t(), c.t().contiguous().t()
        return library.spmm(sparse, b, c, kind, algorithm, keep)
    return [lambda: maker(False), lambda: maker(True)]


def row_pointers(p, ours):
    device, rows = ours.result.device, torch.from_numpy(ours.block_rows)
    pointers = torch.zeros(p.rows // p.block + 1, dtype=torch.int32)
    pointers[1:] = torch.bincount(rows, minlength=p.rows // p.block).cumsum(0)
    return pointers.to(device), torch.from_numpy(ours.block_cols).to(torch.int32).to(device)


def cusparse_bsr(p, ours, stream):
    library, kind = Cusparse.open(stream), 1 if p.dtype == "float64" else 0
    pointers, cols = row_pointers(p, ours)
    sparse = library.bsr(p, pointers, cols, ours.sets[0][0], kind)
    return fastest(orders(sparse, p, ours, (pointers, cols), BSR_ALGORITHM, stream), ours)


def cusparse_ell(p, ours, stream):
    """Every block row as long as the longest; what is missing has the column -1."""
    library, kind = Cusparse.open(stream), 1 if p.dtype == "float64" else 0
    rows, all_cols = torch.from_numpy(ours.block_rows), torch.from_numpy(ours.block_cols)
    pointers, _ = row_pointers(p, ours)
    place = torch.arange(len(rows)) - pointers.cpu().long()[rows]
    width = int(place.max()) + 1
    cols = torch.full((p.rows // p.block, width), -1, dtype=torch.int32)
    cols[rows, place] = all_cols.to(torch.int32)
    values = torch.zeros((p.rows // p.block, width, p.block, p.block), dtype=ours.result.dtype, device=ours.result.device)
    values[rows.to(values.device), place.to(values.device)] = ours.sets[0][0]
    cols = cols.to(values.device)
    makers = []
    # The rows of a block row one after another, across its blocks; or block by block. The one that gives our result is it.
    for arranged in (values.transpose(1, 2).contiguous(), values):
        makers += orders(library.ell(p, cols, arranged, kind), p, ours, (cols, arranged), ELL_ALGORITHM, stream)
    return fastest(makers, ours)
