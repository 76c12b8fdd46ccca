# SPDX-License-Identifier: Apache-2.0
"""SciPy's own tests of BSR arrays, from the installed wheel, with matrices of Tartan in place of SciPy's. CANNOT_MEAN
lists the cases that a block-sparse matrix of real numbers cannot mean, or that look inside SciPy, each with its reason;
every other case must pass."""

import numpy as np
import pytest

import tartan

test_base = pytest.importorskip("scipy.sparse.tests.test_base")
import scipy.sparse as sparse  # noqa: E402


def creator(given, shape=None, dtype=None, copy=False, blocksize=None, maxprint=None):
    """bsr_array(...) as a BlockMatrix of float64, with the block size that SciPy chooses. Complex numbers stay SciPy's: some
    cases use them beside real ones."""
    if isinstance(given, (tartan.BlockMatrix, tartan.TransposedMatrix)):
        given = given.tocsr()
    made = sparse.bsr_array(given, shape, dtype, copy, blocksize, maxprint=maxprint)
    return made if made.dtype.kind == "c" else tartan.BlockMatrix.from_scipy(made.astype(np.float64))


REAL = "integers, booleans, complex numbers: Tartan stores real numbers of floating point, and sums are of float64"
FLAT = "one-dimensional results: rows and columns stay matrices, and extremes of rows and columns are arrays"
DENSE = "dense results: refused where no operand is as large as the result, or both are sparse"
INSIDE = "looks inside SciPy's classes: their constructor, attributes, text, or functions that take no others"
TEXT = "the same refusal in other words"
MORE = "asks that something be refused which Tartan does"
CANNOT_MEAN = {
    "test_add_sub": REAL,
    "test_bool_rollover": REAL,
    "test_constructor1_base": INSIDE,
    "test_copy": INSIDE,
    "test_count_nonzero": MORE,
    "test_default_dtype": REAL,
    "test_dtype_preservation": REAL,
    "test_dtype_preservation_empty_index": REAL,
    "test_dtype_preservation_empty_slice": REAL,
    "test_elementwise_divide": DENSE,
    "test_elementwise_multiply": REAL,
    "test_elementwise_multiply_broadcast": DENSE,
    "test_ellipsis_slicing": FLAT,
    "test_empty_arithmetic": REAL,
    "test_expm": INSIDE,
    "test_get_horiz_slice": FLAT,
    "test_get_vert_slice": FLAT,
    "test_getelement": REAL,
    "test_inplace_dense": TEXT,
    "test_inv": INSIDE,
    "test_maximum_minimum": DENSE,
    "test_mean_out": REAL,
    "test_minmax": REAL,
    "test_minmax_axis": FLAT,
    "test_missized_masking": TEXT,
    "test_mu": REAL,
    "test_nanminmax": FLAT,
    "test_neg": REAL,
    "test_numpy_sum": REAL,
    "test_pickle": INSIDE,
    "test_pow": REAL,
    "test_repr": INSIDE,
    "test_resize_blocked": MORE,
    "test_scalar_idx_dtype": INSIDE,
    "test_slicing_2": FLAT,
    "test_slicing_3": FLAT,
    "test_small_multiplication": DENSE,
    "test_str": INSIDE,
    "test_str_maxprint": INSIDE,
    "test_sum_out": REAL,
}
SLOW = {"test_scalar_idx_dtype"}  # 100 s


class Shim(test_base.TestBSR):
    __test__ = False
    spcreator = staticmethod(creator)
    bsr_container = staticmethod(creator)
    math_dtypes = [np.float64]

    @classmethod
    def setup_class(cls):
        everything, test_base.supported_dtypes = test_base.supported_dtypes, [np.float64]
        try:
            cls.init_class()
        finally:
            test_base.supported_dtypes = everything
        cls.is_array_test = True


TestBlockMatrix = type("TestBlockMatrix", (Shim,), {"__test__": True} | dict.fromkeys(CANNOT_MEAN))


@pytest.mark.parametrize("name", sorted(CANNOT_MEAN.keys() - SLOW))
@pytest.mark.filterwarnings("ignore")
def test_the_list_is_true(name):
    """Each case that is left out fails."""
    Shim.setup_class()
    case = getattr(Shim(), name)
    with pytest.raises(BaseException):
        case()
