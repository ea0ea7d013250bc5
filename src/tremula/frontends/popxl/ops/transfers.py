"""Operations that move tensors: from and to the host, remote memory, other chips and tiles."""

from collections.abc import Sequence
from typing import Literal

import torch

from tremula.base.print_format import PrintTensorFmt
from tremula.frontends.popxl.core.context import get_current_graph
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import OperationRow, apply, public
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
from tremula.frontends.popxl.core.streams import DeviceToHostStream, HostToDeviceStream
from tremula.frontends.popxl.core.table import Operand, operation, record
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import dtype, uint32
from tremula.frontends.popxl.dtypes import dtype as popxl_type
from tremula.frontends.popxl.errors import UndefinedValue

PAGE_SECTION = (10, "Host, remote memory, chips")

INIT = OperationRow("init", "Init", None)
HOST_LOAD = OperationRow("host_load", "HostLoad", None, is_pure=False)
HOST_STORE = OperationRow("host_store", "HostStore", None, is_pure=False)
REMOTE_LOAD = OperationRow("remote_load", "RemoteLoad", None, is_pure=False)
REMOTE_LOAD_ = OperationRow("remote_load_", "RemoteLoadInplace", None, is_pure=False, modifies=(0,))
REMOTE_STORE = OperationRow("remote_store", "RemoteStore", None, is_pure=False)
REMOTE_CODE_LOAD = OperationRow("remote_code_load", "RemoteCodeLoad", None, is_pure=False)


def _print_gradient(
    _ctx: object, op: Op, gradients: list[Tensor | None], _wanted: tuple[int, ...]
) -> list[Tensor | None]:
    """The gradient as it is, printed if requested."""
    (grad,) = gradients
    if grad is None or not op.attributes["print_gradient"]:
        return [grad]
    attributes = {**op.attributes, "print_self": True, "print_gradient": False}
    attributes["title"] = f"{op.attributes['title']}_gradient"
    return list(record(PRINT, [grad], (("t", 0),), attributes, [(grad.shape, grad.dtype)]))


PRINT = OperationRow("print_tensor", "PrintTensor", None, is_pure=False, gradient=_print_gradient)


@public
def init(
    shape: Sequence[int],
    dtype: dtype,
    name: str | None = None,
    init_type: Literal["zero", "undef"] = "zero",
    meta_shape: Sequence[int] | None = None,
) -> Tensor:
    """A new tensor: of zeros, or of anything."""
    if init_type not in {"zero", "undef"}:
        raise ValueError(f"Unknown init_type: {init_type}. It must be 'zero' or 'undef'")
    result = tuple(int(n) for n in shape)
    dtype = popxl_type.as_dtype(dtype)
    attributes = {"shape": result, "dtype": dtype, "init_type": init_type}
    attributes["meta_shape"] = tuple(meta_shape or ())
    (t,) = record(INIT, [], (), attributes, [(result, dtype)], names=[name or "t"])
    return t


@public
def host_load(h2d_stream: HostToDeviceStream, name: str | None = None) -> Tensor:
    """The next element of a stream of inputs."""
    name = name or f"{h2d_stream.tensor_id}_host_load"
    into = init(h2d_stream.shape, h2d_stream.dtype, f"{name}_init")
    specs = [(h2d_stream.shape, h2d_stream.dtype)]
    (t,) = record(HOST_LOAD, [into], (("t", 0),), {"stream": h2d_stream}, specs, names=[name])
    return t


@public
def host_store(d2h_stream: DeviceToHostStream, t: Tensor) -> None:
    """Add a tensor to a stream of results."""
    if d2h_stream.dtype != t.dtype:
        raise ValueError(
            f"dtypes of stream and tensor do not match: {d2h_stream.tensor_id} has"
            f" {d2h_stream.dtype!r}, {t.id} has {t.dtype!r}"
        )
    if d2h_stream.shape != t.shape:
        raise ValueError(
            f"shapes of stream and tensor do not match: {d2h_stream.tensor_id} has"
            f" {d2h_stream.shape}, {t.id} has {t.shape}"
        )
    record(HOST_STORE, [t], (("t", 0),), {"stream": d2h_stream}, [])


# -- remote memory ---------------------------------------------------------------------------------


@public
def remote_load(
    remote_buffer: RemoteBuffer, offset: int | Tensor, name: str | None = None
) -> Tensor:
    """A copy of an entry of a remote buffer."""
    buffer = remote_buffer
    shape, type_ = buffer.tensor_shape, buffer.tensor_dtype
    into = init(shape, type_, f"{name or 'remote_load'}_init", meta_shape=buffer.meta_shape)
    attributes = {"buffer": buffer, "meta_shape": buffer.meta_shape}
    (t,) = record(
        REMOTE_LOAD,
        [into, _offset(buffer, offset)],
        (("t", 0), ("offset", 1)),
        attributes,
        [(shape, type_)],
        names=[name or "remote_load_out"],
    )
    return t


@public
def remote_load_(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> Tensor:
    """Read an entry of a remote buffer into a tensor."""
    remote_buffer.validate_tensor_matches_buffer(t)
    attributes = {"buffer": remote_buffer, "meta_shape": t.meta_shape or remote_buffer.meta_shape}
    (out,) = record(
        REMOTE_LOAD_,
        [t, _offset(remote_buffer, offset)],
        (("t", 0), ("offset", 1)),
        attributes,
        [(t.shape, t.dtype)],
    )
    return out


@public
def remote_store(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> None:
    """Write a tensor to an entry of a remote buffer."""
    remote_buffer.validate_tensor_matches_buffer(t)
    attributes = {"buffer": remote_buffer}
    inputs = [t, _offset(remote_buffer, offset)]
    record(REMOTE_STORE, inputs, (("t", 0), ("offset", 1)), attributes, [])


def _offset(buffer: RemoteBuffer, offset: int | Tensor) -> Tensor:
    if isinstance(offset, Tensor):
        if not offset.dtype.is_integer or offset.nelms != 1:
            raise ValueError(f"The offset of a remote buffer is one integer, got {offset!r}")
        return offset
    buffer.check_offset(int(offset))
    return apply("constant", int(offset), uint32, "offset")


@public
def remote_code_load(graph: Graph, destination: Literal["executable"]) -> None:
    """Bring the code of a graph from remote memory; here, code is always where it is needed."""
    if destination != "executable":
        raise ValueError(f"Code is loaded to 'executable', got {destination!r}")
    if graph is get_current_graph():
        raise ValueError(
            f"The remote_code_load op cannot load the code of the graph that it is in,"
            f" {graph.id or 'main'}: load the code of a graph that is called"
        )
    record(REMOTE_CODE_LOAD, [], (), {"graph": graph, "destination": destination}, [])


# -- chips and tiles -------------------------------------------------------------------------------


@operation("IpuCopy", name="_ipu_copy")
def _ipu_copy(t: Operand, destination: int, source: int) -> torch.Tensor:  # noqa: ARG001
    return t.clone()


@public
def ipu_copy(t: Tensor, destination: int, source: int | None = None) -> Tensor:
    """A copy on another chip of the same replica."""
    if source is None:
        try:
            source = t.ipu if t.producer is not None else None
        except UndefinedValue:
            source = None
    if source is None:
        raise ValueError(
            f"Could not infer the ipu of {t.id}, which no operation on a known chip makes. Please"
            " specify `source`"
        )
    return _ipu_copy(t, destination, source)


@operation("IoTileCopy")
def io_tile_copy(t: Operand) -> torch.Tensor:
    """A copy on the other kind of tiles: I/O if computing ones hold it, and the reverse."""
    return t.clone()


@public
def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 75,
    digits: int = 8,
    float_format: str = "auto",
    separator: str = " ",
    open_bracket: str = "[",
    close_bracket: str = "]",
) -> Tensor:
    """Print a tensor each time it is computed; returns a copy of it."""
    attributes = {
        "title": title or f"print_{t.name}",
        "print_self": print_self, "print_gradient": print_gradient,
        "summarise_threshold": summarise_threshold, "edge_items": edge_items,
        "max_line_width": max_line_width, "digits": digits, "float_format": float_format,
        "separator": separator, "open_bracket": open_bracket, "close_bracket": close_bracket,
    }  # fmt: skip
    PrintTensorFmt(
        summarise_threshold, edge_items, max_line_width, digits, float_format, separator,
        open_bracket, close_bracket,
    )  # fmt: skip
    (out,) = record(PRINT, [t], (("t", 0),), attributes, [(t.shape, t.dtype)])
    return out
