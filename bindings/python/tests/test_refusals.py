# SPDX-License-Identifier: Apache-2.0
"""Every kind of bad input is refused by name, and nothing is written."""

import numpy as np
import pytest

import tartan
from tartan import BlockMatrix, Layout, spmm


@pytest.fixture
def a(rng):
    layout = Layout.from_mask([[1, 1], [0, 1], [1, 0]], 4)
    return BlockMatrix.from_dense(rng.standard_normal((12, 8)), layout=layout)


def refused(kind, words, call, *outputs):
    before = [np.array(o, copy=True) for o in outputs]
    with pytest.raises(kind, match=words or None) as caught:
        call()
    assert isinstance(caught.value, tartan.TartanError) and caught.value.status < 0
    for o, was in zip(outputs, before):
        np.testing.assert_array_equal(o, was)


def test_wrong_shapes(a):
    out = np.full((12, 3), 7.0)
    refused(tartan.ShapeError, "b", lambda: spmm(a, np.ones((7, 3)), out=out), out)
    refused(tartan.ShapeError, r"out has shape \[12, 4\], expected \[12, 3\]", lambda: spmm(a, np.ones((8, 3)), out=np.zeros((12, 4))))
    refused(tartan.ShapeError, "", lambda: a @ np.ones(12))
    refused(tartan.ShapeError, "", lambda: a @ np.float64(3))
    refused(tartan.ShapeError, "", lambda: a.T @ np.ones((8, 2)))
    refused(
        tartan.ShapeError,
        "gates",
        lambda: spmm(a, np.ones((8, 3)), gates=np.ones(a.blocks + 1), out=out),
        out,
    )
    refused(tartan.ShapeError, "", lambda: tartan.sddmm(a, np.ones((12, 2)), np.ones((3, 8))), a.values)
    refused(tartan.ShapeError, "values", lambda: BlockMatrix(a.layout, np.zeros((a.blocks, 4, 3))))
    refused(tartan.ShapeError, "", lambda: Layout.from_mask([1, 0], 4))
    refused(tartan.ShapeError, "mask", lambda: Layout.from_mask([[1, 0]], 4, shape=(4, 20)))
    refused(tartan.ShapeError, "shape", lambda: Layout.from_csr((4,), 4, [0], []))
    refused(tartan.ShapeError, "", lambda: Layout.from_csr((4, 4), 4, [0], []))
    refused(tartan.ShapeError, "", lambda: a.layout | Layout.from_mask([[1]], 4))
    refused(tartan.ShapeError, "", lambda: Layout.from_coordinates((4, 4), 2, [0, 1], [0]))
    refused(tartan.ShapeError, "block", lambda: Layout.from_mask([[1]], (1, 2, 3)))


def test_mixed_dtypes(a):
    out = np.full((12, 3), 7.0)
    narrow = a.astype("float32")
    refused(tartan.DTypeError, "b is of float64, expected float32", lambda: narrow @ np.ones((8, 3)))
    refused(tartan.DTypeError, "b is of int64, expected float32", lambda: narrow @ np.ones((8, 3), int))
    refused(tartan.DTypeError, "b is of float128|longdouble", lambda: a @ np.ones((8, 3), np.longdouble))
    refused(tartan.ArgumentError, "casting is 'some'", lambda: spmm(a, np.ones((8, 3)), casting="some"))
    refused(tartan.DTypeError, "b is of float64, expected float32", lambda: spmm(narrow, np.ones(8), casting="no"))
    refused(tartan.DTypeError, "complex numbers", lambda: spmm(a, np.ones((8, 3), complex), out=out), out)
    refused(tartan.DTypeError, "b is of complex128, expected .*float32", lambda: narrow @ np.ones((8, 3), complex))
    refused(tartan.DTypeError, "out is of float32", lambda: spmm(a, np.ones((8, 3)), out=np.zeros((12, 3), np.float32)))
    refused(TypeError, "b", lambda: a @ np.array([["x"] * 3] * 8))
    refused(tartan.DTypeError, "dtype is int64.*to_scipy", lambda: a.astype(int))
    refused(tartan.DTypeError, "dtype is nonsense", lambda: a.astype("nonsense"))
    refused(tartan.DTypeError, "", lambda: Layout.from_coordinates((4, 4), 2, [0.5], [0]))
    refused(tartan.DTypeError, "scores", lambda: a.layout.keep_largest(["x"], 1))


@pytest.mark.parametrize("size", [np.nan, np.inf, -np.inf, 2.5, "4", None])
def test_sizes_that_are_no_integers(size):
    refused(TypeError, "block is of type", lambda: Layout.pattern("dense", (16, 16), size))
    refused(TypeError, "shape is of type", lambda: Layout.pattern("dense", (size, 16), 4))


@pytest.mark.parametrize("size", [0, -1, 257, 2**40, 2**70])
def test_sizes_out_of_range(size):
    refused(ValueError, "block", lambda: Layout.pattern("dense", (16, 16), size))


def test_indices():
    for rows, cols in [([4], [0]), ([0], [4]), ([-1], [0]), ([0], [2**40]), ([0, 1, 0], [1, 1, 1])]:
        refused(tartan.LayoutError, "", lambda r=rows, c=cols: Layout.from_coordinates((16, 16), 4, r, c))
    refused(tartan.LayoutError, "", lambda: Layout.from_csr((8, 8), 4, [0, 2, 1], [0]))
    refused(tartan.LayoutError, "", lambda: Layout.from_csr((8, 8), 4, [0, 2, 2], [1, 1]))
    refused(tartan.LayoutError, "", lambda: Layout.from_csr((8, 8), 4, [0, 1, 2], [0, 2]))
    refused(
        ValueError,
        "beyond int64",
        lambda: Layout.from_coordinates((8, 8), 4, np.array([2**63], np.uint64), [0]),
    )
    layout = Layout.pattern("dense", (8, 8), 4)
    refused(tartan.LayoutError, "", lambda: layout.find([2], [0]))
    refused(tartan.LayoutError, "", lambda: layout.move([0], [1], [1]))
    refused(ValueError, "", lambda: layout.permute([0, 0]))
    refused(ValueError, "", lambda: layout[0:3])
    refused(ValueError, "", lambda: layout[1:0])
    refused(TypeError, "slices", lambda: layout[0])
    refused(ValueError, "step", lambda: layout[::2])
    matrix = BlockMatrix.zeros(layout)
    refused(ValueError, "", lambda: matrix[8, 0])
    refused(ValueError, "", lambda: matrix[0, -9])
    refused(TypeError, "", lambda: matrix[0.5, 0])
    refused(IndexError, "row is 8, expected -8 .. 7", lambda: matrix[8])
    refused(IndexError, "col is -9", lambda: matrix[:, -9])
    refused(IndexError, "row\\[1\\] is 8", lambda: matrix[[0, 8], :])
    refused(TypeError, "adds? a dimension", lambda: matrix[None])
    refused(TypeError, "index is", lambda: matrix[0, 0, 0])
    refused(TypeError, "row is True", lambda: matrix[True])
    refused(TypeError, "no array", lambda: matrix[[[0], [1, 2]]])
    refused(IndexError, "booleans of shape", lambda: matrix[np.ones((8, 7), bool)])
    refused(ValueError, "do not fit together", lambda: matrix[[0, 1], [0, 1, 2]])
    refused(ValueError, "2 dimensions", lambda: matrix[np.zeros((2, 2), int), :])
    refused(ValueError, "row has a step of 0", lambda: matrix[::0])
    refused(ValueError, "col has a step of 0", lambda: matrix[:, ::0])


def test_overflow():
    refused(ValueError, "", lambda: Layout.from_coordinates((2**62, 2**62), 1, [], []))
    refused(ValueError, "", lambda: Layout.from_coordinates((2**31 * 300, 2), 1, [], []))
    refused(ValueError, "", lambda: Layout.from_coordinates((2**63, 2), 1, [], []))
    refused(ValueError, "", lambda: Layout.from_coordinates((-1, 2), 1, [], []))
    refused((ValueError, MemoryError), "", lambda: Layout.pattern("dense", (2**31 - 1, 2**31 - 1), 1))


@pytest.mark.parametrize("thing", [None, 3, "layout", object(), np.zeros(3)])
def test_foreign_objects(a, thing):
    refused(tartan.HandleTypeError, "layout is of type", lambda: BlockMatrix(thing, np.zeros((1, 4, 4))))
    refused(tartan.HandleTypeError, "layout is of type", lambda: a.project(thing))
    refused(tartan.HandleTypeError, "a is of type", lambda: spmm(thing, np.ones((8, 3))))
    refused(
        tartan.HandleTypeError,
        "s is of type",
        lambda: tartan.sddmm(thing, np.ones((8, 3)), np.ones((3, 8))),
    )
    if isinstance(thing, str):  # a device's name
        refused(tartan.ArgumentError, "device is", lambda: spmm(a, np.ones((8, 3)), context=thing))
    elif thing is not None:
        refused(tartan.HandleError, "context is of type", lambda: spmm(a, np.ones((8, 3)), context=thing))


def test_closed_objects(a):
    layout, context = a.layout, tartan.Context()
    out = np.full((12, 3), 7.0)
    context.close()
    refused(
        tartan.HandleError,
        "context is closed",
        lambda: spmm(a, np.ones((8, 3)), out=out, context=context),
        out,
    )
    refused(tartan.HandleError, "closed", lambda: context.threads)
    layout.close()
    layout.close()
    for use in (lambda: layout.blocks, lambda: layout.T, lambda: layout | layout, lambda: layout == layout,
                lambda: BlockMatrix.zeros(layout), lambda: layout.mask(), lambda: hash(layout)):  # fmt: skip
        refused(tartan.HandleError, "closed", use)
    values = a.values
    a.close()
    for use in (lambda: a @ np.ones(8), lambda: a.toarray(), lambda: a.shape, lambda: a.values,
                lambda: a.copy(),
                lambda: a.T @ np.ones(12), lambda: a[0, 0], lambda: a.fill_zero()):  # fmt: skip
        refused(tartan.HandleError, "closed", use, values)


def test_read_only_outputs(a):
    out = np.full((12, 3), 7.0)
    out.flags.writeable = False
    refused(tartan.ArgumentError, "read-only", lambda: spmm(a, np.ones((8, 3)), out=out), out)
    refused(tartan.ArgumentError, "read-only", lambda: a.toarray(out=out))
    values = np.zeros((a.blocks, 4, 4))
    values.flags.writeable = False
    frozen = BlockMatrix(a.layout, values)
    for write in (frozen.fill_identity, lambda: frozen.setdiag(1), lambda: frozen.fill_normal(), lambda: frozen.block.__setitem__((0, 0), 1),
                  lambda: frozen.__setitem__((0, 0), 1.0), lambda: tartan.sddmm(frozen, np.ones((12, 2)), np.ones((2, 8))),
                  lambda: frozen.scatter(a, np.arange(4)), lambda: frozen.__imul__(2), lambda: frozen.fill_orthogonal(),
                  lambda: tartan.gate_gradient(a, frozen, gates=np.ones(4)), lambda: tartan.block_softmax(a, out=frozen)):  # fmt: skip
        with pytest.raises(ValueError, match="read-only"):
            write()
    assert not frozen.values.flags.writeable and np.shares_memory(frozen.values, values) and frozen.nnz > 0
    assert not values.any() and (2 * frozen).values.flags.writeable and frozen.copy().values.flags.writeable
    BlockMatrix(a.layout, values, copy=True).fill_identity()


def test_overlap(a):
    memory = np.ones((12, 12))
    refused(tartan.ArgumentError, "", lambda: spmm(a, memory[:8, :3], out=memory[:, :3]), memory)
    refused(
        tartan.ArgumentError,
        "",
        lambda: spmm(a, np.ones((8, 4)), out=a.values[:3].reshape(12, 4)),
        a.values,
    )
    repeated = np.lib.stride_tricks.as_strided(memory, (12, 3), (0, 8))
    refused(tartan.ArgumentError, "", lambda: spmm(a, np.ones((8, 3)), out=repeated), memory)
    flat = a.values.reshape(-1)
    refused(
        tartan.ArgumentError,
        "",
        lambda: tartan.sddmm(a, flat[:24].reshape(12, 2), np.ones((2, 8))),
        a.values,
    )


def test_scalars(a):
    out = np.full((12, 3), 7.0)
    for name in ("alpha", "beta"):
        for value in (np.nan, np.inf):
            refused(
                tartan.ArgumentError,
                name,
                lambda n=name, v=value: spmm(a, np.ones((8, 3)), out=out, **{n: v}),
                out,
            )
    refused(TypeError, "alpha is of type str", lambda: spmm(a, np.ones((8, 3)), alpha="1"))
    refused(tartan.ArgumentError, "side", lambda: spmm(a, np.ones((8, 3)), side="up"))
    refused(tartan.ArgumentError, "beta", lambda: spmm(a, np.ones((8, 3)), beta=1.0))
    refused(tartan.ArgumentError, "", lambda: tartan.sddmm(a, [np.ones((12, 2))] * 9, [np.ones((2, 8))] * 9))
    refused(tartan.ArgumentError, "norm", lambda: a.block_norms("l7"))
    refused(tartan.ArgumentError, "norm is 'l1', expected 'max', 'l2' or 'gradient'",
            lambda: tartan.growth_score(np.ones((4, 2)), np.ones((2, 4)), 2, norm="l1"))  # fmt: skip
    for call in (lambda k: a.tril(k), lambda k: a.add_diagonal(1, k), lambda k: a.setdiag(1, k)):
        refused(TypeError, "k is of type str", lambda c=call: c("1"))
    refused(tartan.ArgumentError, "k is 99", lambda: a.setdiag(1, 99), a.values)
    refused(tartan.ArgumentError, "rtol and atol are -1", lambda: a.isclose_all(a, rtol=-1))
    refused(tartan.ShapeError, "function gives shape \\(1, 4, 4\\)", lambda: a.apply(lambda values: values[:1]))
    refused(tartan.ArgumentError, "order", lambda: a.astype(order="X"))
    refused(tartan.NotFoundError, "plaid", lambda: Layout.pattern("plaid", (8, 8), 4))
    refused(tartan.ArgumentError, "colour", lambda: Layout.pattern("dense", (8, 8), 4, colour=3))
    refused(tartan.ArgumentError, "", lambda: Layout.pattern("random", (8, 8), 4, seed=-5))
    refused((tartan.DeviceError, tartan.ArgumentError), "", lambda: tartan.Context("toaster"))
    refused(tartan.ArgumentError, "threads", lambda: tartan.Context(threads=-1))


def test_operands_of_other_kinds(a):
    sparse = pytest.importorskip("scipy.sparse")
    refused(TypeError, "dense|array", lambda: tartan.sddmm(a, sparse.eye_array(12), np.ones((12, 8))))
    refused(tartan.ArgumentError, "two sparse", lambda: spmm(a, sparse.eye_array(8), out=np.ones((12, 8))))
    refused(tartan.ShapeError, "b has 7 rows, expected 8", lambda: a @ sparse.eye_array(7))
    refused(TypeError, "masked", lambda: a @ np.ma.ones(8))
    refused(TypeError, "b is of type|array", lambda: a @ "text")
    refused(TypeError, "", lambda: a @ {1: 2})
    refused(TypeError, "list of numbers", lambda: tartan.sddmm(a, [[1.0]], [[1.0]]))


def test_what_an_exporter_refuses_is_an_error_of_ours(a):
    class Stubborn:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **options):
            raise BufferError("its own reason")

    out = np.full((12, 3), 7.0)
    for call in (lambda: a @ Stubborn(), lambda: spmm(a, np.ones((8, 3)), out=Stubborn()),
                 lambda: BlockMatrix(a.layout, Stubborn()),
                 lambda: spmm(a, np.ones((8, 3)), gates=Stubborn(), out=out)):  # fmt: skip
        refused(tartan.ArgumentError, "(b|out|values|gates) cannot be used in place: its own reason", call, out)


def test_every_status_has_a_class_of_its_kind():
    from tartan import _errors, _raw

    for status in range(-14, 0):
        error = _errors.of_status(status, "words")
        assert error.status == status and str(error) == "words" and error.text == "words"
        assert type(error) is not tartan.TartanError
        assert _raw.tartan_status_name(status) != "UNKNOWN"
    kinds = {-1: ValueError, -3: ValueError, -4: TypeError, -6: NotImplementedError, -7: MemoryError,
             -10: OSError, -11: OSError, -12: OSError, -13: KeyError}  # fmt: skip
    for status, kind in kinds.items():
        assert isinstance(_errors.of_status(status, ""), kind)


def test_outputs_must_be_writable_in_place():
    a = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]), block=2)
    for call in (
        lambda: tartan.spmm(a, np.ones(4), out=[0.0] * 4),
        lambda: a.toarray(out=[[0.0] * 4] * 4),
        lambda: tartan.growth_score(np.ones((4, 2)), np.ones((2, 4)), 2, out=[[0.0] * 2] * 2),
    ):
        with pytest.raises(tartan.ArgumentTypeError, match="out is a list, expected an array"):
            call()


@pytest.mark.parametrize("b", [["1"] * 4, [10**400] * 4, [1j] * 4, [[1.0], [1.0, 2.0], [3.0], [4.0]]], ids=str)
def test_lists_that_are_no_real_numbers(b):
    a = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]), block=2)
    with pytest.raises(tartan.ArgumentTypeError, match="b "):
        a @ b
