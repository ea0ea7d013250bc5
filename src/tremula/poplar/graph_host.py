"""The host side of a graph: handles, streams, remote buffers, functions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from tremula.base.errors import StreamConnectionError
from tremula.base.source import user_source
from tremula.base.types import Type, as_type
from tremula.poplar.programs import Program
from tremula.poplar.streams import (
    DataStream,
    Function,
    FunctionBuffer,
    HostFunction,
    RemoteBuffer,
    ReplicatedStreamMode,
)
from tremula.poplar.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tremula.poplar.graph import GraphState

Claimed = TypeVar("Claimed")


class HostSide:
    """Mixed into Graph."""

    state: "GraphState"

    def create_host_write(self, handle: str, tensor: Tensor) -> None:
        """Let the host write a tensor with `engine.write_tensor(handle, data)`."""
        if tensor.contains_constant or tensor.contains_aliases:
            raise StreamConnectionError(
                f"host write {handle!r} needs a tensor without constants and repeated elements.",
                source=user_source(),
                hint="make the handle for the variable itself",
            )
        self._claim(self.state.handles.writes, handle, tensor)

    def create_host_read(self, handle: str, tensor: Tensor) -> None:
        """Let the host read a tensor with `engine.read_tensor(handle)`."""
        self._claim(self.state.handles.reads, handle, tensor)

    def add_host_to_device_fifo(
        self,
        handle: str,
        type: Type | str,
        n_elements: int,
        mode: ReplicatedStreamMode = ReplicatedStreamMode.REPLICATE,
        *,
        buffering_depth: int = 1,
    ) -> DataStream:
        """A stream into the device; each Copy takes the next `n_elements`."""
        stream = DataStream(handle, as_type(type), n_elements, True, mode, buffering_depth)
        return self._claim(self.state.handles.streams, handle, stream)

    def add_device_to_host_fifo(self, handle: str, type: Type | str, n_elements: int) -> DataStream:
        """A stream out of the device."""
        stream = DataStream(handle, as_type(type), n_elements, False)
        return self._claim(self.state.handles.streams, handle, stream)

    def add_remote_buffer(
        self, handle: str, type: Type | str, n_elements: int, repeats: int = 1
    ) -> RemoteBuffer:
        """Off-chip memory of `repeats` rows of `n_elements`."""
        buffer = RemoteBuffer(handle, as_type(type), n_elements, repeats)
        return self._claim(self.state.handles.remote_buffers, handle, buffer)

    def add_host_function(
        self,
        handle: str,
        inputs: Iterable[tuple[Type | str, int]] = (),
        outputs: Iterable[tuple[Type | str, int]] = (),
    ) -> HostFunction:
        """Host code that programs can Call; inputs and outputs are (type, n_elements)."""
        function = HostFunction(
            handle,
            tuple((as_type(t), n) for t, n in inputs),
            tuple((as_type(t), n) for t, n in outputs),
        )
        return self._claim(self.state.handles.host_functions, handle, function)

    def add_function(self, program: Program, name: str = "") -> Function:
        """Code that all `Call`s of it share; it has no arguments."""
        return Function(program, name)

    def add_function_buffer(self, function: Function) -> FunctionBuffer:
        """Remote memory for a function's code."""
        return FunctionBuffer(function)

    def _claim(self, table: dict[str, Claimed], handle: str, value: Claimed) -> Claimed:
        if getattr(value, "n_elements", 1) < 1 or getattr(value, "repeats", 1) < 1:
            raise StreamConnectionError(
                f"{handle!r} moves nothing: it has no elements or no rows.",
                source=user_source(),
                hint="use n_elements and repeats of 1 or more",
            )
        if handle in table:
            raise StreamConnectionError(
                f"handle {handle!r} is taken.",
                source=user_source(),
                hint="give each a name of its own",
            )
        table[handle] = value
        return value
