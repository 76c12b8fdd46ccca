# SPDX-License-Identifier: Apache-2.0
"""Tries every operation of operations.txt with scipy.sparse and with Tartan on the same data. Prints one JSON object a line:

id          of the operation
peer        the line for scipy.sparse; "" if there is none
tartan      the line for Tartan; "" if there is none
peer_result what the peer's line gives: "sparse", "dense", "number", "nothing" or "refused"
result      the same for Tartan, or "missing" for what Tartan does not know
right       whether Tartan's numbers are the peer's, or true if there is nothing to compare
text        the message, if Tartan refuses

An operation that makes no sense in Python is in NOT_HERE, with the reason."""

import ast
import copy
import json
import os
import pickle
import sys
import tempfile
import warnings

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

import tartan

DENSE = np.round(np.random.default_rng(7).standard_normal((6, 6)) * np.kron([[1, 0, 1], [0, 1, 0], [1, 1, 1]], np.ones((2, 2))), 3)
OTHER = np.round(np.random.default_rng(8).standard_normal((6, 6)) * np.kron([[0, 0, 1], [1, 1, 0], [0, 1, 1]], np.ones((2, 2))), 3)
SPD = DENSE @ DENSE.T + 9 * np.eye(6)

# id: the line for both, or (scipy.sparse's, Tartan's). W and V are matrices with blocks of 2, P is symmetric and positive
# definite, S a csr_array. The last statement is the result.
LINES = {
    "negate": "-W",
    "scale_number": "2 * W",
    "divide_number": "W / 2",
    "scale_in_place": "W *= 2; W",
    "add": "W + W",
    "subtract": "W - W",
    "add_other_layout": "W + V",
    "add_in_place": "W += V; W",
    "add_peer": "W + S",
    "diagonal_minus": "sp.eye_array(6) - 0.5 * W",
    "add_dense": "W + X",
    "add_number": "W + 1",
    "multiply": "W * V",
    "multiply_dense": "W.multiply(X)",
    "divide_dense": "W / (1 + X * X)",
    "maximum": "W.maximum(V)",
    "minimum": "W.minimum(V)",
    "maximum_number": "W.maximum(0)",
    "power": "W ** 2",
    "power_matrix": "sp.linalg.matrix_power(W, 3)",
    "abs": "abs(W)",
    "sign": "W.sign()",
    "sqrt": "abs(W).sqrt()",
    "round": "round(W, 1)",
    "function": "W.tanh()",
    "conjugate": "W.conj()",
    "broadcast": "2 * W - V / 3 + W * V",
    "equal": "W == V",
    "not_equal": "W != V",
    "less": "W < V",
    "greater_number": "W > 0.5",
    "same": "(W != W.copy()).nnz == 0",
    "close": ("np.allclose((W - W.copy()).toarray(), 0)", "W.isclose_all(W.copy())"),
    "symmetric": ("abs(P - P.T).max() == 0", "P.isclose_all(P.T, 0, 0)"),
    "truth": "bool(W)",
    "matvec": "W @ x",
    "matmat": "W @ X",
    "left": "x @ W",
    "left_matmat": "X @ W",
    "transpose_matvec": "W.T @ x",
    "dot": "W.dot(x)",
    "integers": "W @ np.arange(6)",
    "single": "W @ x.astype('f4')",
    "booleans": "W @ (x > 0)",
    "complex": "W @ (x + 2j * x)",
    "sparse_product": "W @ S",
    "block_product": "W @ V",
    "gram": "W.T @ W",
    "in_place_product": ("y[:] = W @ x; y", "tartan.spmm(W, x, out=y)"),
    "scale_rows": "sp.diags_array(x) @ W",
    "scale_cols": "W @ sp.diags_array(x)",
    "scale_both": ("sp.diags_array(x) @ W @ sp.diags_array(x)", "W.scale(rows=x, cols=x)"),
    "row_normalize": ("sp.diags_array(1 / W.sum(axis=1)) @ W", "W.scale(rows=1 / W.sum(axis=1))"),
    "sum": "W.sum()",
    "row_sums": "W.sum(axis=1)",
    "col_sums": "np.sum(W, axis=0)",
    "mean": "W.mean()",
    "row_means": "W.mean(axis=1)",
    "max": "W.max()",
    "min": "W.min()",
    "row_max": ("W.max(axis=1).toarray()", "W.max(axis=1)"),
    "range": "W.min(), W.max()",
    "argmax": "W.argmax()",
    "count_nonzero": "W.count_nonzero()",
    "norm_1": ("spla.norm(W, 1)", "W.norm(1)"),
    "norm_inf": ("spla.norm(W, np.inf)", "W.norm(np.inf)"),
    "norm_fro": ("spla.norm(W)", "W.norm()"),
    "norm_rows": ("spla.norm(W, axis=1)", "W.norm(axis=1)"),
    "norm_2": "spla.svds(W, k=1, return_singular_vectors=False)",
    "trace": "W.trace()",
    "any_nan": ("bool(np.isnan(W.data).any())", "bool(np.isnan(W.values).any())"),
    "diagonal": "W.diagonal()",
    "diagonal_k": "W.diagonal(k=-1)",
    "set_diagonal": "P = P.tocsr(); P.setdiag(x); P",
    "add_diagonal": ("W + 2 * sp.eye_array(6)", "W.add_diagonal(2)"),
    "element": ("W.tocsr()[1, 5]", "W[1, 5]"),
    "element_negative": ("W.tocsr()[-1, 0]", "W[-1, 0]"),
    "set_element": ("W = W.tocsr(); W[1, 5] = 3; W", "W[1, 5] = 3; W"),
    "set_zero_outside": ("W = W.tocsr(); W[0, 2] = 0; W", "W[0, 2] = 0; W"),
    "set_outside": ("W = W.tocsr(); W[0, 2] = 3; W", "W.with_elements(0, 2, 3)"),
    "rows": ("W.tocsr()[1:4]", "W[1:4]"),
    "cols": ("W.tocsr()[:, 3:]", "W[:, 3:]"),
    "part": ("W.tocsr()[1:4, 2:5]", "W[1:4, 2:5]"),
    "row": ("sp.csr_matrix(W)[3]", "W[3]"),
    "col": ("sp.csr_matrix(W)[:, 3]", "W[:, 3]"),
    "row_list": ("W.tocsr()[[4, 0, 0]]", "W[[4, 0, 0]]"),
    "part_list": ("W.tocsr()[np.ix_([4, 0], [1, 5, 5])]", "W[np.ix_([4, 0], [1, 5, 5])]"),
    "booleans_rows": ("W.tocsr()[x > 0]", "W[x > 0]"),
    "elements_list": ("W.tocsr()[[0, 4, 5], [1, 1, 0]]", "W[[0, 4, 5], [1, 1, 0]]"),
    "mask_elements": ("W.tocsr()[X > 0.5]", "W[X > 0.5]"),
    "set_part": ("W = W.tocsr(); W[4:6, 2:5] = X[4:6, 2:5]; W", "W[4:6, 2:5] = X[4:6, 2:5]; W"),
    "set_list": ("W = W.tocsr(); W[[0, 4], [1, 5]] = [7, 8]; W", "W[[0, 4], [1, 5]] = [7, 8]; W"),
    "set_row": ("W = W.tocsr(); W[4] = x; W", "W[4] = x; W"),
    "blocks_range": ("sp.bsr_array(W.tocsr()[2:6], blocksize=(2, 2))", "W.block[1:3]"),
    "nonzeros": ("sp.find(W)", "W.nonzero() + (W[W.nonzero()],)"),
    "stored": "W.nnz",
    "values": ("W.data *= 2; W", "W.values *= 2; W"),
    "iterate": ("[row.sum() for row in W.tocsr()]", "[row.sum() for row in W]"),
    "vstack": ("sp.vstack([W, V])", "tartan.vstack([W, V])"),
    "hstack": ("sp.hstack([W, V])", "tartan.hstack([W, V])"),
    "block_diag": ("sp.block_diag([W, V])", "tartan.block_diag([W, V])"),
    "block_grid": ("sp.block_array([[W, None], [None, V]])", "tartan.block_array([[W, None], [None, V]])"),
    "kron": ("sp.kron(W, X[:2, :3])", "tartan.kron(W, X[:2, :3])"),
    "kron_first": ("sp.kron(X[:2, :3], W)", "tartan.kron(X[:2, :3], W)"),
    "kron_sparse": ("sp.kron(W, V)", "tartan.kron(W, V)"),
    "transpose": "W.T",
    "lower": ("sp.tril(W)", "W.tril()"),
    "upper": ("sp.triu(W, 1)", "W.triu(1)"),
    "drop_zeros": "W = W - W; W.eliminate_zeros(); W",
    "resize": "W.resize(4, 6); W",
    "reshape": "W.reshape(3, 12)",
    "reblock": ("W.tobsr((3, 3))", "W.reblock(3)"),
    "permute": ("W.tocsr()[[4, 5, 0, 1, 2, 3]]", "W.permute(rows=[2, 0, 1])"),
    "copy": "W.copy()",
    "cut": ("(W.tocsr()[:3, :5] != 0).nnz", "W.layout.cut(3, 5).nnz"),
    "boundaries": ("sp.block_array([[X[:1, :4], X[:1, 4:]], [X[1:, :4], X[1:, 4:]]])",
                   "tartan.BlockMatrix.from_dense(X, layout=tartan.Layout.from_mask(np.ones((2, 2)), rows=[0, 1, 6], cols=[0, 4, 6]))"),
    "boundaries_product": ("sp.csr_array(X) @ x",
                           "tartan.BlockMatrix.from_dense(X, layout=tartan.Layout.from_mask(np.ones((2, 2)), rows=[0, 1, 6], cols=[0, 4, 6])) @ x"),
    "boundaries_kept": ("", "tartan.Layout.from_mask(np.ones((2, 2)), rows=[0, 1, 6], cols=[0, 4, 6]).boundaries"),
    "add_at": ("W + sp.coo_array(([1.0, 2, 4], ([0, 5, 0], [1, 5, 1])), shape=(6, 6))", "W.add_elements([0, 5, 0], [1, 5, 1], [1.0, 2, 4])"),
    "add_plan": ("W + sp.coo_array((x[:3], ([0, 5, 0], [1, 5, 1])), shape=(6, 6))",
                 "tartan.Assembly.of_elements(W.layout, [0, 5, 0], [1, 5, 1], order=W.order).add(W, x[:3])"),
    "add_blocks": ("W + sp.kron(sp.coo_array(([1.0, 1], ([2, 2], [1, 1])), shape=(3, 3)), X[:2, :2])",
                   "W.add_blocks([2, 2], [1, 1], np.stack([X[:2, :2], X[:2, :2]]))"),
    "blocks_at": ("sp.kron(sp.coo_array(([1.0, 1, 1], ([2, 0, 2], [1, 2, 1])), shape=(3, 3)), X[:2, :2])",
                  "tartan.BlockMatrix.from_blocks((6, 6), [2, 0, 2], [1, 2, 1], np.stack([X[:2, :2]] * 3))"),
    "from_dense": ("sp.bsr_array(X)", "tartan.BlockMatrix.from_dense(X, 2)"),
    "from_coo": ("sp.coo_array((x, ([0, 1, 2, 3, 3, 0], [0, 5, 2, 3, 1, 0])), shape=(6, 6))",
                 "tartan.BlockMatrix.from_coo((6, 6), [0, 1, 2, 3, 3, 0], [0, 5, 2, 3, 1, 0], x, block=2)"),
    "from_csr": ("sp.csr_array((S.data, S.indices, S.indptr))",
                 "tartan.BlockMatrix.from_csr((6, 6), S.indptr, S.indices, S.data, block=2)"),
    "from_csc": ("sp.csc_array((C.data, C.indices, C.indptr))", "tartan.BlockMatrix.from_scipy(C, 2)"),
    "from_peer": ("sp.bsr_array(S)", "tartan.BlockMatrix.from_scipy(S, 2)"),
    "identity": ("sp.eye_array(6)", "tartan.BlockMatrix.from_scipy(sp.eye_array(6), 2)"),
    "random": ("sp.random_array((6, 6), density=0.5).shape",
               "tartan.BlockMatrix.zeros(tartan.Layout.pattern('random', (6, 6), 2, density=0.5)).fill_normal().shape"),
    "dense": "W.toarray()",
    "dense_unasked": ("np.linalg.det(W.toarray())", "np.linalg.det(W)"),
    "csr": "W.tocsr()",
    "csc": "W.tocsc()",
    "coo": "W.tocoo()",
    "peer": ("W", "W.to_scipy()"),
    "peer_class": "sp.csr_array(W)",
    "as_array": ("W.toarray()", "np.asarray(W)"),
    "single_precision": "W.astype('float32')",
    "integers_type": "W.astype(int)",
    "complex_type": "W.astype(complex)",
    "cg": "spla.cg(P, x, rtol=1e-14)[0]",
    "gmres": "spla.gmres(P, x, rtol=1e-14)[0]",
    "least_squares": "spla.lsqr(W, x, atol=1e-15, btol=1e-15)[0]",
    "eigenvalues": "spla.eigsh(P, k=2, v0=x)[0]",
    "eigenvalues_general": "np.sort(abs(spla.eigs(P, k=2, v0=x)[0]))",
    "singular_values": "spla.svds(W, k=2, v0=x)[1]",
    "norm_estimate": "spla.onenormest(P)",
    "exponential": "spla.expm_multiply(P / 10, x)",
    "preconditioned": "spla.gmres(P, x, rtol=1e-14, M=sp.diags_array(1 / P.diagonal()))[0]",
    "triangular": ("spla.spsolve_triangular(sp.tril(P, format='csr'), x)", "spla.spsolve_triangular(P.tril().tocsr(), x)"),
    "solve": "spla.spsolve(P.tocsc(), x)",
    "solve_unasked": ("spla.spsolve(P.tocsc(), x)", "spla.spsolve(P, x)"),
    "incomplete": "spla.spilu(P.tocsc()).solve(x)",
    "factor": "spla.splu(P.tocsc()).solve(x)",
    "determinant": "float(np.prod(spla.splu(P.tocsc()).U.diagonal()))",
    "save": ("sp.save_npz(path + '.npz', W); sp.load_npz(path + '.npz')", "W.save(path + '.h5'); tartan.load(path + '.h5')"),
    "save_peer": "sp.save_npz(path + '.npz', W); sp.load_npz(path + '.npz')",
    "save_dense": ("np.save(path + '.npy', W.toarray()); np.load(path + '.npy')", "np.save(path + '.npy', W)"),
    "append": ("", "W.save(path + '.h5'); tartan.save(path + '.h5', {'v': V}, append=True); tartan.load(path + '.h5', 'v') + tartan.load(path + '.h5', 'matrix')"),
    "replace": ("", "tartan.save(path + '.h5', {'w': W, 'v': V}); tartan.save(path + '.h5', {'w': 2 * W}, append=True); tartan.load(path + '.h5', 'w')"),
    "load_rows": ("sp.save_npz(path + '.npz', W); sp.load_npz(path + '.npz').tocsr()[2:6]", "W.save(path + '.h5'); tartan.load(path + '.h5', rows=(2, 6))"),
    "serialize": "pickle.loads(pickle.dumps(W))",
    "deep_copy": "copy.deepcopy(W)",
    "print": "isinstance(repr(W), str)",
    "size": ("W.shape, W.ndim, W.data.nbytes", "W.shape, W.ndim, W.nbytes"),
    "threads": ("", "tartan.set_num_threads(1); n = tartan.get_num_threads(); tartan.set_num_threads(0); n"),
    "threads_product": ("W @ x", "tartan.spmm(W, x, context=tartan.Context(threads=1))"),
}  # fmt: skip

NOT_HERE = {
    "names": "scipy.sparse has no names",
    "names_kept": "scipy.sparse has no names",
}


def data(make, folder):
    """The names of the lines; fresh for each, since lines may write."""
    rng = np.random.default_rng(9)
    names = {"W": make(DENSE), "V": make(OTHER), "P": make(SPD), "S": sp.csr_array(OTHER), "C": sp.csc_array(OTHER)}
    names |= {"X": rng.uniform(size=(6, 6)), "x": rng.standard_normal(6), "y": np.empty(6), "path": os.path.join(folder, "m")}
    return names | {"np": np, "sp": sp, "spla": spla, "tartan": tartan, "pickle": pickle, "copy": copy}


def run(line, names):
    """The value of the last statement."""
    *before, last = ast.parse(line).body
    exec(compile(ast.Module(before, []), line, "exec"), names)
    return eval(compile(ast.Expression(last.value), line, "eval"), names)


def kind_of(value):
    if isinstance(value, (tartan.BlockMatrix, tartan.TransposedMatrix)) or sp.issparse(value):
        return "sparse"
    return "dense" if isinstance(value, (np.ndarray, tuple, list)) else "number"


def plain(value):
    """Arrays of numbers to compare."""
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in plain(part)]
    return [np.asarray(value.toarray() if kind_of(value) == "sparse" else value)]


def attempt(line, make, folder):
    """What a line gives: kind, value, text."""
    if not line:
        return "nothing", None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = run(line, data(make, folder))
        return kind_of(value), value, ""
    except (ValueError, TypeError, tartan.TartanError) as error:  # TypeError: also "unsupported operand type(s)"
        ours = isinstance(error, tartan.TartanError) or isinstance(error.__cause__, tartan.TartanError)  # as tracebacks show
        known = ours or "ambiguous" in str(error) or make is peer_matrix
        return "refused" if known else "missing", None, f"{type(error).__name__}: {error}"
    except (AttributeError, NotImplementedError) as error:
        return "refused" if make is peer_matrix else "missing", None, f"{type(error).__name__}: {error}"


def peer_matrix(dense):
    return sp.bsr_array(dense, blocksize=(2, 2))


def tartan_matrix(dense):
    return tartan.BlockMatrix.from_dense(dense, 2)


def equal(a, b):
    a, b = plain(a), plain(b)
    return len(a) == len(b) and all(
        p.shape == q.shape and (np.array_equal(p, q) if p.dtype.kind == "U" else np.allclose(p, q, 1e-6, 1e-9)) for p, q in zip(a, b)
    )


def row(name, folder):
    lines = LINES[name]
    peer, ours = (lines, lines) if isinstance(lines, str) else lines
    peer_kind, wanted, _ = attempt(peer, peer_matrix, folder)
    kind, found, text = attempt(ours, tartan_matrix, folder)
    both = wanted is not None and found is not None
    return {"id": name, "peer": peer, "tartan": ours, "peer_result": peer_kind, "result": kind,
            "right": bool(not both or equal(wanted, found)), "text": text}  # fmt: skip


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in LINES:
            print(json.dumps(row(name, folder)))
    for name, reason in NOT_HERE.items():
        print(json.dumps({"id": name, "not_here": reason}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
