# SPDX-License-Identifier: Apache-2.0
"""Queues: the streams on which arrays are used. They choose the context of a call; the library orders its
work after that of other streams."""

from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError

# A stream that has a name in CUDA: the device's default one. 0 means "not known" here.
LEGACY = 1


class Queue:
    """A device and the address of one of its streams; `owner` keeps the stream alive. The CPU has one
    queue. The extension module reads `device_type`, `device_id` and `stream`."""

    __slots__ = ("device", "device_id", "device_type", "key", "owner", "stream")

    def __init__(self, device: str, stream: int, owner: Any = None) -> None:
        self.device, self.stream, self.owner = device, stream, owner
        self.device_type = _raw.TARTAN_CPU if device == "cpu" else _raw.TARTAN_CUDA
        self.device_id = int(device.partition(":")[2] or 0)
        self.key = (device, stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


CPU = Queue("cpu", 0)


def device_name(device: str) -> str:
    """ "cuda" is "cuda:0", and there is one "cpu"."""
    kind, _, number = device.partition(":")
    return "cpu" if kind == "cpu" else f"{kind}:{int(number or 0)}"


def stream_address(stream: Any, device: Any) -> int:
    """The address of a stream given as a number or as an object of PyTorch, CuPy or another library."""
    if isinstance(stream, (int, np.integer)) and not isinstance(stream, bool):
        address = int(stream)
    elif hasattr(stream, "cuda_stream"):
        address = stream.cuda_stream
    elif hasattr(stream, "ptr"):
        address = stream.ptr
    elif hasattr(stream, "__cuda_stream__"):
        address = stream.__cuda_stream__()[1]
    else:
        raise ArgumentTypeError(
            f"stream is of type {type(stream).__name__}, expected an address, or an object with cuda_stream, "
            "ptr or __cuda_stream__"
        )
    if address < 0:
        raise ArgumentError(f"stream is {address}, expected 0 or more")
    place = getattr(getattr(stream, "device", None), "index", getattr(stream, "device_id", None))
    if (
        isinstance(place, int)
        and place >= 0
        and isinstance(device, str)
        and device_name(device) != f"cuda:{place}"
    ):
        raise ArgumentError(f"stream is of cuda:{place}, expected one of {device_name(device)}")
    return address or LEGACY


def queue_of(x: Any) -> Optional[Queue]:
    """The queue on which the owner of device memory works now; None for host memory and for objects that are
    not arrays. Its stream is 0 if the owner does not provide it."""
    if x is None or type(x) is np.ndarray:  # fast path, since every operand comes here
        return None
    if isinstance(x, Queue):
        return None if x.device == "cpu" else x
    home = getattr(x, "_home", x)
    if home is not x:  # ours
        return queue_of(home)
    if isinstance(x, (np.ndarray, np.generic, list, tuple, int, float)):
        return None
    known = _raw.exchange_queue(x)
    if known is not None:
        return None if known[0] == _raw.TARTAN_CPU else Queue(f"cuda:{known[1]}", known[2])
    for library in ("torch", "cupy"):
        module = sys.modules.get(library)
        array = getattr(module, "Tensor" if library == "torch" else "ndarray", None)
        if array is not None and isinstance(x, array):
            return _torch_queue(module, x) if library == "torch" else _cupy_queue(module, x)
    if hasattr(x, "__dlpack_device__"):
        kind, number = x.__dlpack_device__()
        return Queue(f"cuda:{int(number)}", 0, x) if int(kind) in (2, 13) else None
    interface = cuda_array_interface(x)
    if interface is None:
        return None
    return Queue("cuda:0", interface.get("stream") or 0)


def view(x: Any, stream: Optional[int] = None, mask: bool = False) -> tuple[_raw.Lease, str]:
    """_raw.view, with the tensor's GPU made current, since PyTorch exports tensors only of the current
    GPU."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if torch is not None and tensor is not None and isinstance(x, tensor) and x.is_cuda:
        if x.device.index != torch.cuda.current_device():
            with torch.cuda.device(x.device):
                return _raw.view(x, stream, mask)
    return _raw.view(x, stream, mask)


def export(x: Any, stream: Optional[int]) -> None:
    """Have the owner of `x`, if it has DLPack, order its work so far before later work on `stream` (None: the
    default one)."""
    if hasattr(x, "__dlpack__"):
        view(x, stream)


def _torch_queue(torch: Any, x: Any) -> Optional[Queue]:
    if not x.is_cuda:
        return None
    stream = torch.cuda.current_stream(x.device)
    return Queue(f"cuda:{x.device.index}", stream.cuda_stream or LEGACY, stream)


def _cupy_queue(cupy: Any, x: Any) -> Queue:
    stream = cupy.cuda.get_current_stream(x.device.id)
    return Queue(f"cuda:{x.device.id}", stream.ptr or LEGACY, stream)


def cuda_array_interface(x: Any) -> Optional[dict[str, Any]]:
    interface = getattr(x, "__cuda_array_interface__", None)
    return interface if isinstance(interface, dict) else None


def layout_of_interface(
    interface: dict[str, Any], name: str
) -> tuple[int, str, tuple[int, ...], tuple[int, ...], bool]:
    """Address, dtype, shape, strides in elements, and whether the memory is read-only."""
    if interface.get("mask") is not None:
        raise ArgumentTypeError(f"{name} has a mask, which would be ignored: fill it first")
    if interface.get("stream") == 0:
        raise ArgumentError(f"{name} gives the stream 0, which __cuda_array_interface__ does not allow")
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    size = max(dtype.itemsize, 1)
    given = interface.get("strides")
    steps = (
        [size * int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
        if given is None
        else given
    )
    if len(steps) != len(shape):
        raise ShapeError(f"{name} has {len(shape)} sizes and {len(steps)} strides, expected as many")
    if any(s % size for s in steps):
        raise ArgumentError(
            f"{name} has strides {tuple(steps)} in bytes, expected multiples of its {size}-byte elements"
        )
    address, readonly = interface["data"]
    return address or 0, dtype.str, shape, tuple(s // size for s in steps), bool(readonly)
