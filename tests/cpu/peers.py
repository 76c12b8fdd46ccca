# SPDX-License-Identifier: Apache-2.0
"""Peers of products on the CPU: MKL's dense and block-sparse products, and Julia's SparseArrays."""

import ctypes
import os
import pathlib
import subprocess
import tempfile

import numpy as np

ROW_MAJOR, NO_TRANSPOSE, DENSE_NO_TRANSPOSE, GENERAL = 101, 10, 111, 20  # numbers of mkl_spblas.h and mkl_cblas.h


class MKL:
    """MKL on one thread, from the library that TARTAN_MKL names. Matrices are row-major, indices of 32 bits. Calls keep the arrays that they
    use, since MKL only knows where they are."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.MKL_Set_Num_Threads(1)

    def dense(self, a, b, c):
        """A call of c = a b."""
        kind, function = (ctypes.c_float, self.library.cblas_sgemm) if a.dtype == np.float32 else (ctypes.c_double, self.library.cblas_dgemm)
        m, k, n = a.shape[0], a.shape[1], b.shape[1]
        sizes, no = [ctypes.c_int(x) for x in (m, n, k)], DENSE_NO_TRANSPOSE
        pa, pb, pc = (ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))
        return lambda kept=(a, b, c): function(ROW_MAJOR, no, no, *sizes, kind(1), pa, ctypes.c_int(k), pb, ctypes.c_int(n), kind(0), pc, ctypes.c_int(n))

    def bsr(self, a, b, c):
        """A call of c = a b for a square SciPy BSR matrix, which MKL may analyse before."""

        class Description(ctypes.Structure):
            _fields_ = [("type", ctypes.c_int), ("mode", ctypes.c_int), ("diag", ctypes.c_int)]

        letter, kind = ("s", ctypes.c_float) if a.dtype == np.float32 else ("d", ctypes.c_double)
        create, product = getattr(self.library, f"mkl_sparse_{letter}_create_bsr"), getattr(self.library, f"mkl_sparse_{letter}_mm")
        pointers, columns = np.ascontiguousarray(a.indptr, np.int32), np.ascontiguousarray(a.indices, np.int32)
        handle, block, n = ctypes.c_void_p(), a.blocksize[0], ctypes.c_int(b.shape[1])
        address = lambda x, first=0: ctypes.c_void_p(x[first:].ctypes.data)  # noqa: E731
        check(create(ctypes.byref(handle), 0, ROW_MAJOR, ctypes.c_int(a.shape[0] // block), ctypes.c_int(a.shape[1] // block), ctypes.c_int(block),
                     address(pointers), address(pointers, 1), address(columns), address(a.data)))
        general = Description(GENERAL, 0, 0)
        check(self.library.mkl_sparse_set_mm_hint(handle, NO_TRANSPOSE, general, ROW_MAJOR, n, 1000))
        check(self.library.mkl_sparse_optimize(handle))
        pb, pc = address(b), address(c)
        return lambda kept=(a, pointers, columns, b, c): check(product(NO_TRANSPOSE, kind(1), handle, general, ROW_MAJOR, pb, n, n, kind(0), pc, n))


def check(status):
    if status != 0:
        raise RuntimeError(f"MKL's status is {status}")


def mkl():
    """MKL, or None where it is not there."""
    path = os.environ.get("TARTAN_MKL")
    return MKL(path) if path else None


class Julia:
    """A Julia process that multiplies a sparse matrix (SparseMatrixCSC) by a dense one, column-major both, as often as it is asked."""

    def __init__(self, program, a, b):
        self.program, self.a, self.b, self.process, self.sum = program, a, b, None, None

    def start(self):
        a = self.a.tocsc()
        with tempfile.TemporaryDirectory() as folder:
            for name, array in (("pointers", a.indptr.astype(np.int64) + 1), ("rows", a.indices.astype(np.int64) + 1), ("values", a.data), ("b", self.b.T)):
                np.ascontiguousarray(array).tofile(pathlib.Path(folder, name))
            code = pathlib.Path(__file__).with_name("sparse.jl")
            self.process = subprocess.Popen([self.program, "--startup-file=no", str(code), folder, str(a.shape[0]), str(self.b.shape[1])],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.sum = self.answer()  # of the product; by then it has read its files

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("Julia ended")
        return float(line)

    def seconds(self):
        """Of one product, in processor time."""
        if self.process is None:
            self.start()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        if self.process is not None:
            self.process.communicate()


def julia(a, b):
    """Julia with these f64 matrices, or None where JULIA names no program."""
    program = os.environ.get("JULIA")
    return Julia(program, a, b) if program else None
