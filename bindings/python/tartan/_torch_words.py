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


def EQUAL(a: Any, b: Any) -> Any:
    return (a + b) / 2
