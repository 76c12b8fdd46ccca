# SPDX-License-Identifier: Apache-2.0
"""Operations of random programs. Each gets the program, a matrix `w` and the same elements `d` as a dense array in
float64, and returns what Tartan makes of `w` and what NumPy makes of `d`. One that writes writes into both."""

import copy
import io
import pickle

import numpy as np
import pytest

import tartan
from tartan import BlockMatrix, Layout

sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")

# What users write, the same line for both; `v` is another matrix of the shape of `w`, in blocks of its own.
SAME = """
-w; 2 * w; w / 2; w * 1.5; np.float64(2) * w; w * np.float32(0.5); w * np.array(2); abs(w); w.T; w.transpose(); w.copy()
w.T.copy(); w**2; w**3; w + w; w - w; w * w; w + w.T.T; w.conj(); w.real; w * (w > 0); w * (w != 0); -w.T; w.T.T
w > 0.5; w != 0; w < 0; w == 1; w >= 0.25; w + v; w - v; w * v; v - w; 2 * w - v / 4; w < v; w == v; w != v; w >= v
(w @ v.T) / 4; (w.T @ v) / 4; (w * v + w).T - 2 * v.T; w * (v > 0) + v * (w != 0); np.maximum(w, v); np.minimum(w, v)
w.sum(); w.sum(axis=0); w.sum(axis=1); w.sum(-1); w.mean(); w.mean(axis=0); w.mean(1); w.max(); w.min(); w.max(axis=0)
w.min(axis=1); w.argmax(); w.argmin(axis=0); w.argmax(axis=1); w.trace(); w.trace(1); w.diagonal()
np.sum(w, axis=0); np.abs(w); np.tanh(w); np.sqrt(np.abs(w)); np.sign(w); np.rint(w); np.floor(w); np.square(w)
np.negative(w); np.sin(w); np.expm1(w / 4); np.multiply(w, w); np.add(w, w); np.maximum(w, 0); np.mean(w); np.max(w, axis=0)
np.transpose(w); w.shape; w.ndim; [float(row.sum()) for row in w]; float(sum(abs(row).sum() for row in w))
(w.T @ w) / 4; (w @ w.T) / 4; w.T[::2]; (w.T * 2).T; w / (abs(w).max() + 1); w / (1 + abs(w).sum(axis=1))[:, None]
w * (1 + abs(w).max(axis=0)); w - w.mean(axis=0); w + np.ones(w.shape); np.ones(w.shape) - w; w * np.ones(w.shape, bool)
w * np.arange(w.shape[1]); w / np.arange(1, w.shape[1] + 1); np.arange(w.shape[0])[:, None] * w; w.reshape(1, -1)
w.reshape(w.shape[1], w.shape[0]); w.reshape(-1, 1); w.reshape((w.shape[1], w.shape[0]), order="F"); w[...]; w[0:1]
w[0, 0]; w[-1, -1]; float(w[w.shape[0] // 2, w.shape[1] // 2]); w[::-1]; w[:, ::-2]; w[1:]; w[:, :-1]; w[[0, -1, 0]]
"""

# Tartan's line and NumPy's.
PAIRS = """
w[0] => w[:1]; w[-1] => w[-1:]; w[:, 0] => w[:, :1]; w[..., -1] => w[:, -1:]; round(w, 1) => np.round(w, 1)
w.multiply(2) => w * 2; w.power(2) => w**2; w.sign() => np.sign(w); w.tanh() => np.tanh(w); abs(w).sqrt() => np.sqrt(abs(w))
w.floor() => np.floor(w); w.trunc() => np.trunc(w); w.ceil() => np.ceil(w); w.rint() => np.rint(w)
abs(w).log1p() => np.log1p(abs(w)); w.maximum(0) => np.maximum(w, 0); w.minimum(0) => np.minimum(w, 0)
w.tril() => np.tril(w); w.triu(1) => np.triu(w, 1); w.tril(-2) => np.tril(w, -2); w.triu(-1) => np.triu(w, -1)
w.count_nonzero() => np.count_nonzero(w); w.count_nonzero(axis=0) => np.count_nonzero(w, axis=0); w.nonzero() => w.nonzero()
w.drop_zeros() => w; w.astype("float64") => w; w.astype(np.float32) => w; w.astype(order="F" if w.order == "C" else "C") => w
w.norm() => np.linalg.norm(w); w.norm(1) => abs(w).sum(0).max(); w.norm(np.inf) => abs(w).sum(1).max()
w.norm(axis=1) => np.linalg.norm(w, axis=1); w.todense(order="F") => w; pickle.loads(pickle.dumps(w)) => w
copy.deepcopy(w) => w; copy.copy(w) => w; w.isclose_all(w.copy(), 0, 0) => True; (w != w.copy()).nnz => 0
w.reblock(p.block()) => w; w.nnz >= w.count_nonzero() => True
"""

# With a stored element that is NaN or infinite.
STRANGE = """
w.sum(axis=0) => w.sum(axis=0); w.max(axis=1) => w.max(axis=1); w.min() => w.min(); w.mean() => w.mean(); w * 2 => w * 2
abs(w) => abs(w); w.T => w.T; np.sign(w) => np.sign(w); w > 0 => w > 0; w @ np.ones(w.shape[1], w.dtype) => w.sum(axis=1)
w[::-1] => w[::-1]; w.norm() => np.linalg.norm(w); w.isclose_all(w.copy(), 0, 0, equal_nan=True) => True; w - w.T.T => w - w
w.count_nonzero() => np.count_nonzero(w); w.reblock(2) => w; tartan.vstack([w, w]) => np.vstack([w, w]); w.tril() => np.tril(w)
"""

NAMES = {"np": np, "copy": copy, "pickle": pickle, "tartan": tartan}


def lines(text):
    return [line.strip() for line in text.replace("\n", ";").split(";") if line.strip()]


def same_line(line):
    def run(p, w, d):
        v, e = p.beside(w, d) if "v" in line else (None, None)
        return eval(line, NAMES, {"w": w, "v": v, "p": p}), eval(line, NAMES, {"w": d, "v": e, "p": p})

    return run


def pair_of_lines(line, prepare=lambda p, w, d: (w, d)):
    ours, numpys = line.split(" => ")

    def run(p, w, d):
        w, d = prepare(p, plain(w), d)
        return eval(ours, NAMES, {"w": w, "p": p}), eval(numpys, NAMES, {"w": d, "p": p})

    return run


def plain(w):
    return w.copy() if isinstance(w, tartan.TransposedMatrix) else w


def stored(w):
    """Where something is stored."""
    if isinstance(w, tartan.TransposedMatrix):
        return stored(w.T).T
    rows, cols = w.layout.boundaries
    return np.repeat(np.repeat(w.layout.mask(), np.diff(rows), 0), np.diff(cols), 1)


def with_strange_number(p, w, d):
    w, d, at = w.copy(), d.copy(), np.argwhere(stored(w))
    if len(at):
        i, j = at[p.integer(0, len(at) - 1)]
        w[int(i), int(j)] = d[i, j] = p.one([np.nan, np.inf, -np.inf])
    return w, d


OPERATIONS = {line: same_line(line) for line in lines(SAME)}
OPERATIONS.update({line: pair_of_lines(line) for line in lines(PAIRS)})
OPERATIONS.update({"strange: " + line: pair_of_lines(line, with_strange_number) for line in lines(STRANGE)})


def operation(function):
    OPERATIONS[function.__name__] = function
    return function


def on_plain(function):
    """An operation that a transposed view does not have."""
    OPERATIONS[function.__name__] = lambda p, w, d: function(p, w, d) if isinstance(w, BlockMatrix) else (w, d)
    return function


# ---- Other operands ----


@operation
def beside_sparse(p, w, d):
    v, e = p.beside(w, d)
    e = e.astype("float32" if v.dtype == np.float16 else v.dtype)
    s = getattr(sparse, p.one(["csr_array", "csc_array", "coo_array", "bsr_array"]))(e)
    f = p.one([lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: (a @ b.T) / 4, lambda a, b: (a.T @ b) / 4])
    return (f(w, s), f(d, e)) if p.chance(0.5) else (f(s, w), f(e, d))


@operation
def beside_dense(p, w, d):
    f = p.one([lambda a, x: a + x, lambda a, x: x - a, lambda a, x: a * x, lambda a, x: a < x, lambda a, x: a == x])
    x = p.operand(d.shape)
    return f(w, x), f(d, x.astype(float) if x.dtype == bool else x)


@operation
def times_dense(p, w, d):
    n = p.one([0, 1, 2, 7, 33])
    x = p.operand((d.shape[1], n) if p.chance(0.6) else (d.shape[1],), str(w.dtype))
    f = p.one([lambda a, x: a @ x, lambda a, x: a.dot(x), lambda a, x: x.T @ a.T, lambda a, x: (2 * a) @ x, np.matmul])
    return f(w, x), f(d, x)


@operation
def transpose_times_dense(p, w, d):
    n = p.one([0, 1, 2, 7, 33])
    x = p.operand((d.shape[0], n) if p.chance(0.6) else (d.shape[0],), str(w.dtype))
    f = p.one([lambda a, x: a.T @ x, lambda a, x: x.T @ a, lambda a, x: a.transpose().dot(x), lambda a, x: (x.T @ a).T])
    return f(w, x), f(d, x)


@operation
def times_batch(p, w, d):
    x = p.operand((2, d.shape[1], 3), str(w.dtype))
    return w @ x, d @ x


@operation
def times_complex(p, w, d):
    if w.dtype == np.float16:
        return w, d
    x = (p.numbers(d.shape[1]) + 1j * p.numbers(d.shape[1])).astype("complex64" if w.dtype == np.float32 else complex)
    return w @ x, d @ x


@operation
def spmm(p, w, d):
    x = p.numbers((d.shape[1], p.integer(1, 9)), w.dtype)
    alpha, beta = p.one([1.0, 0.5, -2.0]), p.one([0.0, 1.0, 0.5])
    out = p.numbers((d.shape[0], x.shape[1]), w.dtype)
    out = np.asfortranarray(out) if p.chance(0.3) else out
    wanted = alpha * (d @ x) + beta * out
    return tartan.spmm(w, x, alpha=alpha, beta=beta, out=out), wanted


@on_plain
def sddmm(p, w, d):
    k = p.integer(1, 9)
    x, y = p.numbers((d.shape[0], k), w.dtype), p.numbers((k, d.shape[1]), w.dtype)
    return tartan.sddmm(w.layout, x, y), np.where(stored(w), x.astype(float) @ y, 0)


@on_plain
def gradient(p, w, d):
    n = p.integer(1, 5)
    x, g = p.numbers((d.shape[1], n), w.dtype), p.numbers((d.shape[0], n), w.dtype)
    made = tartan.spmm_gradient(w, x, g)
    return (made[0], made[-1]), (np.where(stored(w), g.astype(float) @ x.T, 0), d.T @ g)


@on_plain
def softmax(p, w, d):
    if w.dtype == np.float16:
        return w, d
    return tartan.block_softmax(w), weights(d, stored(w))


@on_plain
def attention(p, w, d):
    if w.layout.variable:
        return w, d
    n, m, k = *d.shape, p.integer(1, 9)
    q, keys, v = p.numbers((n, k)), p.numbers((m, k)), p.numbers((m, p.integer(1, 6)))
    keep, added, options = stored(w), 0, {}
    if p.chance(0.4):
        options["mask"] = p.rng.random(d.shape) < 0.7
        keep = keep & options["mask"]
    elif p.chance(0.4):
        added = options["mask"] = p.numbers(d.shape)
    scores = (q @ keys.T) / np.sqrt(k)
    if p.chance(0.3):
        options["softcap"] = 3.0
        scores = 3.0 * np.tanh(scores / 3.0)
    return tartan.attention(q, keys, v, w.layout, **options), weights(scores + added, keep) @ v


def weights(scores, keep):
    """The softmax of rows over what is kept; rows without any are zeros."""
    largest = np.where(keep, scores, -np.inf).max(1, keepdims=True, initial=-1e30)
    e = np.where(keep, np.exp(np.where(keep, scores, 0) - np.where(largest > -1e30, largest, 0)), 0)
    total = e.sum(1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


@operation
def solve(p, w, d):
    if w.dtype != np.float64:
        return w, d
    n = d.shape[0]
    a, b, x = (w @ w.T) + 30 * sparse.eye_array(n), d @ d.T + 30 * np.eye(n), p.numbers(n)
    f = p.one([lambda a: linalg.spsolve(a.tocsc(), x), lambda a: linalg.splu(a.tocsc()).solve(x), lambda a: linalg.cg(a, x, rtol=1e-14)[0]])
    return f(a), np.linalg.solve(b, x)


# ---- Indices and assignment ----


@operation
def rows_and_columns(p, w, d):
    i, j = p.index(d.shape[0]), p.index(d.shape[1])
    if not isinstance(i, slice) and not isinstance(j, slice):
        i, j = np.ix_(*(np.asarray(x, None if len(x) else int) for x in (i, j)))
    return w[i, j], d[i, j]


@operation
def rows(p, w, d):
    i, j = p.index(d.shape[0]), p.index(d.shape[1])
    return (w[i], w.T[j], w[:, j]), (d[i], d.T[j], d[:, j])


@operation
def places(p, w, d):
    k = p.integer(0, 6)
    i, j = p.rng.integers(-d.shape[0], d.shape[0], k), p.rng.integers(-d.shape[1], d.shape[1], k)
    mask = p.rng.random(d.shape) < 0.3
    return (w[i, j], w[mask]), (d[i, j], d[mask])


@operation
def assign(p, w, d):
    keep, kind = stored(w), p.integer(0, 4)
    if kind == 0:
        at = p.index(d.shape[0]), slice(None)
        x = p.one([0.5, -1.0, 3.0]) if keep[at].all() else 0.0
    elif kind == 1:
        at = np.unique(np.arange(d.shape[0])[p.index(d.shape[0])]), slice(None)
        x = np.where(keep[at], p.operand(d[at].shape), 0)
    elif kind == 2:
        at = keep & (p.rng.random(d.shape) < 0.5)
        x = p.numbers(int(at.sum()))
    elif kind == 3:
        at = tuple(p.rng.permutation(np.argwhere(keep))[: p.integer(1, 4)].T)
        x = p.numbers(len(at[0]))
    else:
        at = p.integer(0, d.shape[0] - 1)
        x = np.where(keep[at], p.numbers(d.shape[1]), 0)
    w[at] = x
    d[at] = x
    return w, d


@operation
def in_place(p, w, d):
    kind = p.integer(0, 3)
    if kind == 0:
        w *= 0.5
        d *= 0.5
    elif kind == 1:
        t, u = w.T, d.T
        t *= 2
        u *= 2
    elif kind == 2:
        w /= 2
        d /= 2
    elif isinstance(w, BlockMatrix):
        w.values *= 2
        d *= 2
    return w, d


@on_plain
def with_elements(p, w, d):
    at = np.unique(p.rng.integers(0, d.size, p.integer(1, 5)))
    i, j = np.divmod(at, d.shape[1])
    x, e = p.numbers(len(i), w.dtype), d.copy()
    e[i, j] = x
    return w.with_elements(i, j, x), e


@on_plain
def add_elements(p, w, d):
    at = np.argwhere(stored(w))
    if len(at):
        i, j = at[p.rng.integers(0, len(at), p.integer(0, 8))].T
        x = p.numbers(len(i), w.dtype)
        w.add_elements(i, j, x)
        np.add.at(d, (i, j), x)
    return w, d


@on_plain
def diagonals(p, w, d):
    k = p.integer(1 - d.shape[0], d.shape[1] - 1)
    i = np.arange(d.diagonal(k).size)
    x = np.where(stored(w).diagonal(k), p.numbers(i.size), 0)
    w.setdiag(x, k)
    d[i - min(k, 0), i + max(k, 0)] = x
    added = d.copy()
    added[np.arange(min(d.shape)), np.arange(min(d.shape))] += 2
    return w.add_diagonal(2), added


# ---- Structure ----


@operation
def join(p, w, d):
    axis, dtype = p.integer(0, 2), str(w.dtype)
    shape = [lambda: (p.size(), d.shape[1]), lambda: (d.shape[0], p.size()), lambda: (p.size(), p.size())][axis]
    parts = [(w, d)] + [p.fresh(shape(), dtype if p.chance(0.7) else None) if p.chance(0.7) else (w, d) for _ in range(p.integer(1, 3))]
    f = [tartan.vstack, tartan.hstack, tartan.block_diag][axis]
    wanted = [np.vstack, np.hstack, lambda x: sparse.block_diag(x).toarray()][axis]
    return f([a for a, _ in parts]), wanted([b for _, b in parts])


@operation
def grid(p, w, d):
    (v, e), (u, c) = p.fresh((p.size(), d.shape[1])), p.fresh((d.shape[0], p.size()))
    return tartan.block_array([[w, u], [v, None]]), np.block([[d, c], [e, np.zeros((e.shape[0], c.shape[1]))]])


@operation
def kron(p, w, d):
    if d.size > 200:
        return w, d
    x = p.numbers((p.integer(1, 3), p.integer(1, 3)), w.dtype)
    v, e = p.one([(x, x), p.fresh((p.integer(1, 4), p.integer(1, 4)))])
    return (tartan.kron(w, v), np.kron(d, e)) if p.chance(0.5) else (tartan.kron(v, w), np.kron(e, d))


@on_plain
def project(p, w, d):
    v, _ = p.fresh(d.shape)
    v = v.reblock(w.block_shape) if not w.layout.variable else v.reblock(rows=w.layout.boundaries[0], cols=w.layout.boundaries[1])
    f = p.one([lambda a, b: a | b, lambda a, b: a & b, lambda a, b: a - b, lambda a, b: b])
    made = w.project(f(w.layout, v.layout))
    return made, np.where(stored(made), d, 0)


@on_plain
def reblock_at(p, w, d):
    return w.reblock(rows=p.bounds(d.shape[0]), cols=p.one([None, p.bounds(d.shape[1])])), d


@on_plain
def resize(p, w, d):
    m, n = p.size(), p.size()
    e, v = np.zeros((m, n)), w.copy()
    e[: d.shape[0], : d.shape[1]] = d[:m, :n]
    v.resize(m, n)
    return v, e


@operation
def reshape(p, w, d):
    m, order = p.one([k for k in range(1, d.size + 1) if d.size % k == 0]), p.one("CF")
    return w.reshape(m, -1, order=order), d.reshape(m, -1, order=order)


@on_plain
def scale(p, w, d):
    x, y = p.numbers(d.shape[0], w.dtype), p.numbers(d.shape[1], w.dtype)
    return w.scale(rows=x, cols=y), x[:, None].astype(float) * d * y


# ---- Conversion and files ----


@operation
def other_formats(p, w, d):
    w = w.astype("float32") if w.dtype == np.float16 else w
    made = w.asformat(p.one(["csr", "csc", "coo", "lil", "dok", "dia"]), drop_zeros=p.chance(0.5))
    return (made, BlockMatrix.from_scipy(made, p.block())), (d, d)


@on_plain
def from_parts(p, w, d):
    i, j, x = w.to_coo()
    q = p.rng.permutation(len(x))
    twice = [np.concatenate([part[q], part]) for part in (i, j, x)]
    made = BlockMatrix.from_coo(d.shape, *twice, block=p.block(), dtype=w.dtype)
    return (made, BlockMatrix.from_csr(d.shape, *w.to_csr(), block=p.block(), order=p.one("CF"))), (d + d, d)


@operation
def from_dense(p, w, d):
    x = p.one([np.asfortranarray, np.array, lambda x: np.repeat(x, 2, 0)[::2], lambda x: x[::-1, ::-1].copy()[::-1, ::-1]])(d)
    return BlockMatrix.from_dense(x, p.block(), order=p.one("CF")), d


@on_plain
def from_blocks(p, w, d):
    if w.layout.variable or any(n % b for n, b in zip(d.shape, w.block_shape)):
        return w, d
    _, i, j = w.layout.coordinates()
    q, k = p.rng.permutation(len(i)), p.integer(0, len(i))
    values = np.asarray(w.values)[q]
    again = np.concatenate([i[q], i[q][:k]]), np.concatenate([j[q], j[q][:k]]), np.concatenate([values, 0 * values[:k]])
    return BlockMatrix.from_blocks(d.shape, *again, order=w.order), d


@on_plain
def files(p, w, d):
    v, e = p.fresh()
    held = io.BytesIO()
    tartan.save(held, {"a": w, "b": v, "c": d}, compress=p.chance(0.5))
    held.seek(0)
    found = tartan.load_all(held)
    return tuple(found[name] for name in "abc"), (d, e, d)


@on_plain
def from_rule(p, w, d):
    layout = Layout.from_rule(d.shape, p.block(), lambda i, j, head: (i + j) % 3 != 1)
    made = BlockMatrix.from_dense(d, layout=layout)
    return made, np.where(stored(made), d, 0)
