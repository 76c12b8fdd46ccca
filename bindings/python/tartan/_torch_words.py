# SPDX-License-Identifier: Apache-2.0
"""The words of lib/kernels/points.def for tensors of PyTorch. tartan._torch_points is made of them: gradients of element-wise
functions in PyTorch's own operations, for derivatives of derivatives."""

from __future__ import annotations

from typing import Any

import torch

SQRT, EXP, EXPM1, LOG, TANH, ERF, SIGMOID = (
    torch.sqrt, torch.exp, torch.expm1, torch.log, torch.tanh, torch.erf, torch.sigmoid,
)  # fmt: skip
NORMAL = torch.special.ndtr
GREATER = torch.gt


def NUM(number: float) -> Any:
    return torch.tensor(float(number), dtype=torch.float64)


def FMA(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def SELECT(condition: Any, a: Any, b: Any) -> Any:
    return torch.where(condition, a, b)


def MAX(a: Any, b: Any) -> Any:
    return torch.where(a > b, a, b)


def MIN(a: Any, b: Any) -> Any:
    return torch.where(b > a, a, b)


def KEEP_NAN(x: Any, value: Any) -> Any:
    return torch.where(torch.isnan(x), x, value)


def EQUAL(a: Any, b: Any) -> Any:
    return (a + b) / 2


# Words made of other words, as points.def makes them.


def INNER(x: Any, far: float) -> Any:
    return MAX(NUM(-far), MIN(NUM(far), x))


def SILU_SLOPE(x: Any) -> Any:
    return SIGMOID(x) * FMA(INNER(x, 1000), SIGMOID(-x), NUM(1))


def GELU_SLOPE(x: Any) -> Any:
    return FMA(INNER(x, 100), NUM(0.39894228040143267794) * EXP(NUM(-0.5) * x * x), NORMAL(x))


def RELU(x: Any) -> Any:
    return SELECT(GREATER(NUM(0), x), NUM(0), x)


def SILU(x: Any) -> Any:
    return MAX(NUM(-1000), x) * SIGMOID(x)


def GELU(x: Any) -> Any:
    return MAX(NUM(-100), x) * NORMAL(x)


def TWICE_CUBIC(x: Any) -> Any:
    return x * FMA(NUM(0.07135481627260024877), x * x, NUM(1.5957691216057307117))


def FILTERED(x: Any, p: Any, q: Any, r: Any, s: Any) -> Any:
    finite = torch.where(GREATER(r, NUM(0)) & torch.isinf(x), NUM(0), x)
    scaled = torch.where(GREATER(s, NUM(0)) & torch.isnan(finite), NUM(0), finite) * p
    return torch.where(GREATER(q, NUM(0)), MAX(-q, MIN(q, scaled)), scaled)
