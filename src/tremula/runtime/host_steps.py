"""Steps that Python does: streams, remote buffers, host functions, printing, aborts, seeds."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tremula.base.errors import ApplicationRuntimeError, RuntimeFailure, StreamConnectionError
from tremula.base.tracing import POPLAR, span
from tremula.base.types import HALF
from tremula.compiler.executable.records import StepRecord
from tremula.compiler.program_ir import StepKind
from tremula.poplar.tensors.print_format import PrintTensorFmt, format_tensor

if TYPE_CHECKING:
    from tremula.runtime.engine import Engine


def run_host_step(engine: "Engine", step: StepRecord) -> None:
    """Do one step for all replicas."""
    _HANDLERS[step.kind](engine, step)


def _stream_in(engine: "Engine", step: StepRecord) -> None:
    stream = engine.executable.host.streams[step.detail["handle"]]
    chunk = None
    for replica in range(engine.n_replicas):
        if chunk is None or not stream.is_broadcast:
            chunk = engine.port(stream.handle, replica).take()
        engine.storage.write(step.writes[0], chunk, replica)


def _stream_out(engine: "Engine", step: StepRecord) -> None:
    for replica in range(engine.n_replicas):
        values = engine.storage.read(step.reads[0], replica).ravel()
        engine.port(step.detail["handle"], replica).give(values)


def _remote_rows(engine: "Engine", step: StepRecord, replica: int) -> tuple[np.ndarray, np.ndarray]:
    """The remote buffer of a replica and the rows this step moves."""
    handle = step.detail["handle"]
    memory = engine.remote_memory(handle, replica)
    is_write = step.kind is StepKind.REMOTE_WRITE
    offsets = step.reads[1:] if is_write else step.reads
    rows = engine.storage.read(offsets[0], replica).ravel() if offsets else np.zeros(1, np.int64)
    bad = rows[(rows < 0) | (rows >= len(memory))]
    if len(bad):
        raise RuntimeFailure(
            f"{step.name}: row {bad[0]} of remote buffer {handle!r} does not exist: it has "
            f"{len(memory)} rows. At {step.source}.",
            hint="check the offset tensor",
        )
    return memory, rows.astype(np.int64)


def _remote_read(engine: "Engine", step: StepRecord) -> None:
    for replica in range(engine.n_replicas):
        memory, rows = _remote_rows(engine, step, replica)
        engine.storage.write(step.writes[0], memory[rows], replica)


def _remote_write(engine: "Engine", step: StepRecord) -> None:
    for replica in range(engine.n_replicas):
        memory, rows = _remote_rows(engine, step, replica)
        memory[rows] = engine.storage.read(step.reads[0], replica).reshape(len(rows), -1)


def _cross_replica(engine: "Engine", step: StepRecord) -> None:
    values = [engine.storage.read(step.reads[0], r) for r in range(engine.n_replicas)]
    for source, destination in step.detail["pairs"]:
        engine.storage.write(step.writes[0], values[source], destination)


def _host_call(engine: "Engine", step: StepRecord) -> None:
    handle = step.detail["handle"]
    function = engine.host_functions.get(handle)
    if function is None:
        raise StreamConnectionError(
            f"host function {handle!r} is called but not connected.",
            hint=f"call engine.connect_host_function({handle!r}, fn) before run()",
        )
    for replica in range(engine.n_replicas):
        inputs = [engine.storage.read(view, replica).ravel() for view in step.reads]
        outputs = [engine.storage.read(view, replica).ravel() for view in step.writes]
        with span(POPLAR, "host function", function=handle):
            function(inputs, outputs)
        for view, values in zip(step.writes, outputs, strict=True):
            engine.storage.write(view, values, replica)


def _print(engine: "Engine", step: StepRecord) -> None:
    fmt = PrintTensorFmt(**step.detail["fmt"]) if step.detail["fmt"] else PrintTensorFmt()
    for replica in range(engine.n_replicas):
        title = step.detail["title"]
        if engine.n_replicas > 1:
            title = f"{title}[{replica}]"
        text = format_tensor(title, engine.storage.read_values(step.reads[0], replica), fmt)
        print(text, file=engine.print_stream, flush=True)


def _abort(engine: "Engine", step: StepRecord) -> None:
    message = step.detail["message"] or "the program was aborted"
    if step.reads:
        values = engine.storage.read_values(step.reads[0])
        message += " " + format_tensor("", values, PrintTensorFmt()).strip()
    raise ApplicationRuntimeError(f"{message}\n  at {step.source}")


def _machine_state(engine: "Engine", step: StepRecord) -> None:
    if "get" in step.detail:
        for replica in range(engine.n_replicas):
            engine.storage.write(step.writes[0], engine.storage.read_seeds(replica), replica)
        return
    engine.machine_state.update(step.detail["set"])
    engine.set_rounding()
    if engine.machine_state.rounding_mode:
        _warn_of_nearest(engine, step)
    for view in step.reads:
        for replica in range(engine.n_replicas):
            engine.storage.write_seeds(engine.storage.read(view, replica), replica)


def _warn_of_nearest(engine: "Engine", step: StepRecord) -> None:
    """C++ codelets round as the host's compiler does, whatever the machine's mode is."""
    specs = [c.spec for c in engine.executable.codelets if c.spec.language == "c++"]
    names = [s.name for s in specs if any(f.type == HALF for f in s.fields)]
    if names:
        warnings.warn(
            f"{step.name} at {step.source} changes how halves round, but C++ codelets "
            f"({', '.join(names)}) round to nearest and overflow to infinity.",
            stacklevel=2,
        )


_HANDLERS: dict[StepKind, Callable[["Engine", StepRecord], Any]] = {
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
