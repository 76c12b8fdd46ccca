# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention of one head by NumPy: the reference (of f64), and the baseline (of f32)."""

import math

import numpy as np


class Head:
    """q [tq, d], k and v [tk, d] of one dtype; `block` (queries, keys); the stored blocks' rows and columns, by row."""

    def __init__(self, q, k, v, block, rows, cols):
        self.q, self.k, self.v, self.block = q, k, v, block
        self.scale = q.dtype.type(1 / math.sqrt(q.shape[1]))
        bounds = np.searchsorted(rows, np.arange(-(-len(q) // block[0]) + 1))
        self.cols = [cols[begin:end] for begin, end in zip(bounds, bounds[1:])]

    def rows(self):
        """(the queries of a block row, the keys that they see)."""
        bq, bk = self.block
        for i, cols in enumerate(self.cols):
            keys = (cols[:, None] * bk + np.arange(bk)).ravel()
            yield slice(i * bq, (i + 1) * bq), keys[keys < len(self.k)]

    def weights(self, queries, keys):
        """Weights and log-sum-exp of the queries of a block row."""
        if len(keys) == 0:
            nothing = self.q[queries, :0]
            return nothing, np.full(len(nothing), -np.inf, self.q.dtype)
        scores = self.q[queries] @ self.k[keys].T * self.scale
        most = scores.max(1, keepdims=True)
        weights = np.exp(scores - most)
        total = weights.sum(1, keepdims=True)
        return weights / total, (most + np.log(total))[:, 0]

    def forward(self):
        """(out, lse)."""
        out, lse = np.zeros_like(self.q), np.empty(len(self.q), self.q.dtype)
        for queries, keys in self.rows():
            weights, lse[queries] = self.weights(queries, keys)
            out[queries] = weights @ self.v[keys]
        return out, lse

    def backward(self, out, out_grad):
        """The gradients of q, k and v."""
        q_grad, k_grad, v_grad = np.zeros_like(self.q), np.zeros_like(self.k), np.zeros_like(self.v)
        for queries, keys in self.rows():
            weights, _ = self.weights(queries, keys)
            delta = (out[queries] * out_grad[queries]).sum(1, keepdims=True)
            ds = weights * (out_grad[queries] @ self.v[keys].T - delta) * self.scale
            q_grad[queries] = ds @ self.k[keys]
            k_grad[keys] += ds.T @ self.q[queries]  # no key comes twice
            v_grad[keys] += weights.T @ out_grad[queries]
        return q_grad, k_grad, v_grad
