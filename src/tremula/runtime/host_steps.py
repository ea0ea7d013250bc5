"""Steps that Python does: streams, remote buffers, host functions, printing, aborts, seeds."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tremula.base.errors import ApplicationRuntimeError, RuntimeFailure, StreamConnectionError
from tremula.base.print_format import PrintTensorFmt, format_tensor
from tremula.base.tracing import POPLAR, span
from tremula.base.types import HALF
from tremula.compiler.executable.records import StepRecord
from tremula.compiler.program_ir import StepKind
from tremula.runtime.loaded import LoadedProgram


def run_host_step(loaded: LoadedProgram, step: StepRecord) -> None:
    """Do one step for all replicas."""
    _HANDLERS[step.kind](loaded, step)


def _stream_in(loaded: LoadedProgram, step: StepRecord) -> None:
    stream = loaded.executable.host.streams[step.detail["handle"]]
    chunk = None
    for replica in range(loaded.n_replicas):
        if chunk is None or not stream.is_broadcast:
            chunk = loaded.host.port(stream.handle, replica).take()
        loaded.storage.write(step.writes[0], chunk, replica)


def _stream_out(loaded: LoadedProgram, step: StepRecord) -> None:
    for replica in range(loaded.n_replicas):
        values = loaded.storage.read(step.reads[0], replica).ravel()
        loaded.host.port(step.detail["handle"], replica).give(values)


def _remote_rows(
    loaded: LoadedProgram, step: StepRecord, replica: int
) -> tuple[np.ndarray, np.ndarray]:
    """The remote buffer of a replica and the rows this step moves."""
    handle = step.detail["handle"]
    memory = loaded.remote_memory(handle, replica)
    is_write = step.kind is StepKind.REMOTE_WRITE
    offsets = step.reads[1:] if is_write else step.reads
    rows = loaded.storage.read(offsets[0], replica).ravel() if offsets else np.zeros(1, np.int64)
    bad = rows[(rows < 0) | (rows >= len(memory))]
    if len(bad):
        raise RuntimeFailure(
            f"{step.name}: row {bad[0]} of remote buffer {handle!r} does not exist: it has "
            f"{len(memory)} rows.\n  at {step.source}",
            hint=f"let the offset tensor hold 0 to {len(memory) - 1}",
        )
    return memory, rows.astype(np.int64)


def _remote_read(loaded: LoadedProgram, step: StepRecord) -> None:
    for replica in range(loaded.n_replicas):
        memory, rows = _remote_rows(loaded, step, replica)
        loaded.storage.write(step.writes[0], memory[rows], replica)


def _remote_write(loaded: LoadedProgram, step: StepRecord) -> None:
    for replica in range(loaded.n_replicas):
        memory, rows = _remote_rows(loaded, step, replica)
        memory[rows] = loaded.storage.read(step.reads[0], replica).reshape(len(rows), -1)


def _cross_replica(loaded: LoadedProgram, step: StepRecord) -> None:
    values = [loaded.storage.read(step.reads[0], r) for r in range(loaded.n_replicas)]
    for source, destination in step.detail["pairs"]:
        loaded.storage.write(step.writes[0], values[source], destination)


def _host_call(loaded: LoadedProgram, step: StepRecord) -> None:
    handle = step.detail["handle"]
    function = loaded.host.functions.get(handle)
    if function is None:
        raise StreamConnectionError(
            f"host function {handle!r} is called but not connected.",
            hint=f"call engine.connect_host_function({handle!r}, fn) before run()",
        )
    for replica in range(loaded.n_replicas):
        inputs = [loaded.storage.read(view, replica).ravel() for view in step.reads]
        outputs = [loaded.storage.read(view, replica).ravel() for view in step.writes]
        with span(POPLAR, "host function", function=handle):
            function(inputs, outputs)
        for view, values in zip(step.writes, outputs, strict=True):
            loaded.storage.write(view, values, replica)


def _print(loaded: LoadedProgram, step: StepRecord) -> None:
    fmt = PrintTensorFmt(**step.detail["fmt"]) if step.detail["fmt"] else PrintTensorFmt()
    for replica in range(loaded.n_replicas):
        title = step.detail["title"]
        if loaded.n_replicas > 1:
            title = f"{title}[{replica}]"
        text = format_tensor(title, loaded.storage.read_values(step.reads[0], replica), fmt)
        print(text, file=loaded.host.print_stream, flush=True)


def _abort(loaded: LoadedProgram, step: StepRecord) -> None:
    message = step.detail["message"] or "the program was aborted"
    if step.reads:
        values = loaded.storage.read_values(step.reads[0])
        message += " " + format_tensor("", values, PrintTensorFmt()).strip()
    raise ApplicationRuntimeError(f"{message}\n  at {step.source}")


def _machine_state(loaded: LoadedProgram, step: StepRecord) -> None:
    if "get" in step.detail:
        for replica in range(loaded.n_replicas):
            loaded.storage.write(step.writes[0], loaded.storage.read_seeds(replica), replica)
        return
    loaded.machine_state.update(step.detail["set"])
    loaded.set_rounding()
    if loaded.machine_state.rounding_mode:
        _warn_of_nearest(loaded, step)
    for view in step.reads:
        for replica in range(loaded.n_replicas):
            loaded.storage.write_seeds(loaded.storage.read(view, replica), replica)


def _warn_of_nearest(loaded: LoadedProgram, step: StepRecord) -> None:
    """C++ codelets round as the host's compiler does, whatever the machine's mode is."""
    specs = [c.spec for c in loaded.executable.codelets if c.spec.language == "c++"]
    names = [s.name for s in specs if any(f.type == HALF for f in s.fields)]
    if names:
        warnings.warn(
            f"{step.name} at {step.source} changes how halves round, but C++ codelets "
            f"({', '.join(names)}) round to nearest and overflow to infinity.",
            stacklevel=2,
        )


_HANDLERS: dict[StepKind, Callable[[LoadedProgram, StepRecord], Any]] = {
    StepKind.STREAM_IN: _stream_in,
    StepKind.STREAM_OUT: _stream_out,
    StepKind.REMOTE_READ: _remote_read,
    StepKind.REMOTE_WRITE: _remote_write,
    StepKind.CROSS_REPLICA: _cross_replica,
    StepKind.HOST_CALL: _host_call,
    StepKind.PRINT: _print,
    StepKind.ABORT: _abort,
    StepKind.MACHINE_STATE: _machine_state,
}
