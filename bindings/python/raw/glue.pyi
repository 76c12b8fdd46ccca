# SPDX-License-Identifier: Apache-2.0
"""The C functions, one for one, as swig/lang/python.i makes them. Arguments are positional; array lengths follow from
the arrays; `out` handles, texts and numbers are results; other outputs are written in place."""

from collections.abc import Callable, Sequence
from typing import Any, Optional, Tuple, Union, final

# A lease, or anything with the buffer protocol or __dlpack__; or (uint16 array, "bfloat16"), and uint8 arrays with
# "float8_e4m3fn" or "float8_e5m2".
_Buffer = Any
_Operand = Any
_Frame = tuple[int, int, int, int, int]
_Places = tuple[Optional[_Buffer], _Buffer, _Buffer]  # heads, rows, cols
_Compressed = tuple[_Buffer, _Buffer, bool]  # pointers, indices, by_column
_ChannelSets = tuple[int, _Buffer, _Buffer]  # channels, offsets, ids
_Text = Union[str, bytes]

@final
class Handle:
    @property
    def closed(self) -> bool: ...
    @property
    def readonly(self) -> bool: ...
    def close(self) -> None: ...
    def freeze(self) -> None: ...
    def hold(self, other: Handle, /) -> None: ...

@final
class Lease:  # exports the buffer protocol where the memory is the CPU's
    @property
    def address(self) -> int: ...
    @property
    def dtype(self) -> int: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def readonly(self) -> bool: ...
    def dlpack(self, versioned: bool, stream: int, /) -> Any: ...

def view(array: Any, stream: Optional[int] = None, mask: bool = False, name: str = "array", /) -> tuple[Lease, str]: ...
def lease(
    keep: Any,
    address: int,
    dtype: int,
    device: tuple[int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    readonly: bool,
    /,
) -> Lease: ...
def use_numpy(ndarray: type, dtypes: tuple[Any, Any, Any], samples: tuple[Any, ...], /) -> None: ...
def use_python(
    DeviceArray: type,
    Queue: type,
    empty: Callable[..., Any],
    dtypes: dict[int, Any],
    queue_of: Callable[..., Any],
    look: Callable[..., Any],
    export: Callable[..., None],
    fresh: Callable[..., Any],
    given_as: Callable[..., Any],
    make_context: Callable[..., Any],
    rounds_to_tf32: Callable[[], bool],
    context_of: Callable[..., Any],
    cast: Callable[..., Any],
) -> None: ...
def use_product(product: Callable[..., Any], /) -> None: ...
def exchange_queue(array: Any, /) -> Optional[tuple[int, int, int]]: ...
def context_on(device_type: int, device_id: int, stream: int, queue: Any, /) -> Any: ...
def contexts() -> list[Any]: ...
def spmm(
    a: Any, b: Any, side: str = "left", transpose: bool = False, alpha: float = 1.0, beta: float = 0.0, out: Any = None,
    gates: Any = None, context: Any = None, /
) -> Any: ...
def sddmm(
    s: Any, x: Any, y: Any, alpha: float, beta: float, gates: Any, context: Any, make: Optional[Callable[..., Any]], /
) -> Any: ...
def growth_score(
    x: Any, y: Any, block_rows: int, block_cols: int, norm: str, scale: float, beta: float, out: Any, context: Any, /
) -> Any: ...
def attention(
    layout: Handle, mask: Optional[Handle], q: Any, k: Any, v: Any, bias: Any, kind: Optional[str], scale: Optional[float],
    causal: bool, query_offset: int, causal_from: int, dropout: float, seed: int, deterministic: bool,
    softcap: float, by_batch: Any, context: Any,
    out: Any, lse: Any, return_lse: bool, sinks: Any, /
) -> Any: ...
def attention_gradient(
    layout: Handle, mask: Optional[Handle], q: Any, k: Any, v: Any, bias: Any, kind: Optional[str], scale: Optional[float],
    causal: bool, query_offset: int, causal_from: int, dropout: float, seed: int, deterministic: bool,
    softcap: float, by_batch: Any, context: Any,
    out: Any, lse: Any, out_grad: Any, /
) -> tuple[Any, Any, Any]: ...
def attention_bias_gradient(
    layout: Handle, mask: Optional[Handle], q: Any, k: Any, v: Any, bias: Any, kind: Optional[str], scale: Optional[float],
    causal: bool, query_offset: int, causal_from: int, dropout: float, seed: int, deterministic: bool,
    softcap: float, by_batch: Any, context: Any,
    out: Any, lse: Any, out_grad: Any, sinks: Any, wants_bias: bool, wants_sinks: bool, /
) -> tuple[Any, Any]: ...
def operation(number: int, context: Any, wanted: int, /, *operands: Any) -> Any: ...
def operation_of_images(
    number: int, context: Any, wanted: int, dims: int, channels_last: bool, /, *operands: Any
) -> Any: ...
def attention_recorded(
    ctx: Any, q: Any, k: Any, v: Any, bias: Any, sinks: Any, constants: tuple[Any, ...], /
) -> Any: ...
def attention_recorded_gradients(ctx: Any, /, *grads: Any) -> tuple[Any, ...]: ...

attention_recorded_apply: Any

def records(*arrays: Any) -> bool: ...
def intercepts(*objects: Any) -> bool: ...
def is_torchs(*objects: Any) -> bool: ...
def kernel(step: int, /) -> None: ...
