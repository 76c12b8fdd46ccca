# SPDX-License-Identifier: Apache-2.0
"""Numbers beside the elements of smaller blocks, and keys behind the blocks of a sequence, reach no result, NaN neither."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tartan
from tartan import BlockMatrix, Layout

RNG = np.random.default_rng(5)
X = RNG.standard_normal((10, 7))
VECTOR, WIDE = RNG.standard_normal(7), RNG.standard_normal((7, 9))

FUNCTIONS = {
    "toarray": lambda A: A.toarray(), "tocoo": lambda A: A.tocoo(), "tocsr": lambda A: A.tocsr(), "tocsc": lambda A: A.tocsc(),
    "product": lambda A: A @ VECTOR, "wide product": lambda A: A @ WIDE, "left product": lambda A: X.T @ A,
    "transposed product": lambda A: A.T @ X, "gram": lambda A: A.T @ A, "outer": lambda A: A @ A.T,
    "sum": lambda A: A.sum(), "row sums": lambda A: A.sum(axis=1), "column sums": lambda A: A.sum(axis=0), "mean": lambda A: A.mean(axis=0),
    "max": lambda A: A.max(), "min of rows": lambda A: A.min(axis=1), "count": lambda A: A.count_nonzero(), "count of rows": lambda A: A.count_nonzero(axis=1),
    "norm": lambda A: A.norm(), "1-norm": lambda A: A.norm(1), "inf-norm": lambda A: A.norm(np.inf), "row norms": lambda A: A.norm(axis=1),
    "argmax": lambda A: A.argmax(), "block norms": lambda A: A.block_norms(), "diagonal": lambda A: A.diagonal(1), "trace": lambda A: A.trace(),
    "negative": lambda A: -A, "times": lambda A: 2 * A, "plus": lambda A: A + A, "elementwise": lambda A: A * A, "with dense": lambda A: A.multiply(X),
    "maximum": lambda A: A.maximum(0), "power": lambda A: A ** 2, "abs": lambda A: abs(A), "sign": lambda A: A.sign(), "tanh": lambda A: A.tanh(),
    "round": lambda A: round(A, 1), "less": lambda A: A < 0.5, "different": lambda A: A != A, "equal": lambda A: (A - A).count_nonzero(),
    "scaled": lambda A: A.scale(rows=X[:, 0], cols=VECTOR), "transpose": lambda A: A.T.copy(), "cut": lambda A: A[2:9, 1:6], "rows": lambda A: A[[9, 0, 0, 4]],
    "column": lambda A: A[:, 6], "row": lambda A: A[9], "elements": lambda A: A[[9, 8, 0], [6, 5, 0]], "nonzero": lambda A: A.nonzero(),
    "vstack": lambda A: tartan.vstack([A, A]), "hstack": lambda A: tartan.hstack([A, A]), "block_diag": lambda A: tartan.block_diag([A, A]),
    "kron": lambda A: tartan.kron(A, np.ones((1, 2))), "tril": lambda A: A.tril(), "triu": lambda A: A.triu(1), "reblock": lambda A: A.reblock(2),
    "single": lambda A: A.astype("float32"), "copy": lambda A: A.copy(), "close": lambda A: A.isclose_all(A.copy()), "sparse product": lambda A: A @ A.T.tocsr(),
}  # fmt: skip


def ragged() -> BlockMatrix:
    return BlockMatrix.from_dense(X, 4)


def different() -> BlockMatrix:
    return BlockMatrix.from_dense(X, layout=Layout.from_mask([[1, 0, 1], [0, 1, 1]], rows=[0, 3, 10], cols=[0, 1, 5, 7]))


def poisoned(A: BlockMatrix) -> BlockMatrix:
    """The same elements with NaN beside them."""
    B = A.copy()
    values, (rows, cols) = B.values, A.layout.boundaries
    for k, (i, j) in enumerate(zip(*A.layout.coordinates()[1:])):
        values[k, rows[i + 1] - rows[i] :] = np.nan
        values[k, :, cols[j + 1] - cols[j] :] = np.nan
    assert np.isnan(B.values).any()
    return B


def plain(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [array for part in value for array in plain(part)]
    return [np.asarray(value.toarray() if hasattr(value, "toarray") else value)]


@pytest.mark.parametrize("make", [ragged, different])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_beside_the_elements_reaches_no_result(make: Any, name: str) -> None:
    A = make()
    try:
        wanted = FUNCTIONS[name](A)
    except tartan.UnsupportedError:
        pytest.skip("not for blocks of different sizes")
    for x, y in zip(plain(wanted), plain(FUNCTIONS[name](poisoned(A)))):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("causal", [False, True])
def test_keys_behind_the_blocks_of_a_sequence_are_not_read(dtype: str, causal: bool) -> None:
    lengths = [32, 16, 0, 64]
    q, k, v = (RNG.standard_normal((4, 2, 64, 16)).astype(dtype) for _ in range(3))
    layout = Layout.pattern("causal" if causal else "dense", (64, 64), 16)
    wanted = tartan.attention(q, k, v, layout, causal=causal, key_lengths=lengths)
    for entry, length in enumerate(lengths):
        k[entry, :, length:] = v[entry, :, length:] = np.nan
    np.testing.assert_allclose(tartan.attention(q, k, v, layout, causal=causal, key_lengths=lengths), wanted)
    assert np.isfinite(wanted).all() and not wanted[2].any()
