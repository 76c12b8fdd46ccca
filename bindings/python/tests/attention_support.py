# SPDX-License-Identifier: Apache-2.0
"""Attention as a dense computation in float64."""

import numpy as np


def visible(layout, mask=None, causal=False, query_offset=0, causal_from=0):
    """[heads, queries, keys]"""
    height, width = layout.block_shape
    stored = layout.mask().reshape(layout.heads, *layout.grid)
    seen = stored.repeat(height, axis=1).repeat(width, axis=2)[:, : layout.rows, : layout.cols]
    if mask is not None:
        seen = seen & mask.toarray().reshape(layout.heads, layout.rows, layout.cols)
    i, j = np.arange(layout.rows)[:, None], np.arange(layout.cols)
    return seen & ((j <= i + query_offset) | (j < causal_from)) if causal else seen


def biased(layout, heads, slopes=None, distance_bias=None, block_bias=None, query_offset=0):
    """What a bias adds, [heads, queries, keys]."""
    i, j = np.arange(layout.rows)[:, None], np.arange(layout.cols)
    away = j - i - query_offset
    if slopes is not None:
        return np.asarray(slopes, np.float64)[:, None, None] * away
    if distance_bias is not None:
        reach = distance_bias.shape[1] // 2
        return np.asarray(distance_bias, np.float64)[:, np.clip(away, -reach, reach) + reach]
    if block_bias is not None:
        result = np.zeros((max(layout.heads, block_bias.shape[0]), layout.rows, layout.cols))
        height, width = layout.block_shape
        for id, (head, row, col) in enumerate(zip(*layout.coordinates())):
            where = head if layout.heads > 1 else slice(None)
            part = np.s_[row * height : (row + 1) * height, col * width : (col + 1) * width]
            value = np.asarray(block_bias[0 if layout.heads > 1 else slice(None), id], np.float64)
            result[(where, *part)] = value if layout.heads > 1 else value[:, None, None]
        return result
    return np.zeros((1, 1, 1))


def dense_attention(q, k, v, seen, bias=0.0, scale=None, sinks=None):
    """out and lse of arrays [batch, heads, tokens, d]; heads of k and v may be fewer."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat(shared, axis=1), v.repeat(shared, axis=1)
    scores = (q @ k.swapaxes(-1, -2)) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale) + bias
    scores = np.where(seen, scores, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        sink = np.full((1, 1, 1, 1), -np.inf) if sinks is None else np.asarray(sinks, np.float64)[:, None, None]
        top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), sink)
        most = np.where(np.isfinite(top), top, 0)
        sums = np.exp(scores - most).sum(-1, keepdims=True) + np.exp(sink - most)
        weights = np.where(sums > 0, np.exp(scores - most) / sums, 0)
        return weights @ v, (np.log(sums) + most)[..., 0]
