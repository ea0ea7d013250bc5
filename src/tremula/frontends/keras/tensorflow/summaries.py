"""`tf.summary`: scalars, images, histograms and text in files that TensorBoard reads."""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import keras
import numpy as np
import torch

from tremula.base.context_values import set_inside
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.images import encode_png
from tremula.frontends.keras.tensorflow.records import framed, in_field, varint

__all__ = [
    "SummaryWriter",
    "create_file_writer",
    "create_noop_writer",
    "flush",
    "get_step",
    "graph",
    "histogram",
    "image",
    "record_if",
    "scalar",
    "set_step",
    "should_record_summaries",
    "text",
    "trace_export",
    "trace_off",
    "trace_on",
]

_VERSION = b"brain.Event:2"
_N_BUCKETS = 30
Value = torch.Tensor | keras.Variable | np.ndarray | np.generic | float
Step = Value | None
Condition = bool | Callable[[], object]


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def _whole(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


class SummaryWriter:
    """A file of events."""

    _n_files = 0

    def __init__(self, logdir: str, filename_suffix: str = ""):
        os.makedirs(logdir, exist_ok=True)
        SummaryWriter._n_files += 1
        name = (
            f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
            f".{SummaryWriter._n_files}{filename_suffix}"
        )
        self.path = os.path.join(logdir, name)
        self._file = open(self.path, "wb")  # noqa: SIM115 - closed by the script
        self._file.write(framed(_double(1, time.time()) + in_field(3, _VERSION)))

    @contextmanager
    def as_default(self, step: int | None = None) -> Iterator["SummaryWriter"]:
        """Summaries of the block are written here."""
        with set_inside(_writer, self):
            if step is None:
                yield self
            else:
                with set_inside(_step, step):
                    yield self
        self.flush()

    def write(self, value: bytes, step: int) -> None:
        """Write the value of a summary."""
        event = _double(1, time.time()) + _whole(2, step) + in_field(5, in_field(1, value))
        self._file.write(framed(event))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if not self._file.closed:
            self._file.close()

    def init(self) -> None:
        """Nothing has to be run."""

    set_as_default = as_default


_writer: ContextVar[SummaryWriter | None] = ContextVar("summary_writer", default=None)
_step: ContextVar[Step] = ContextVar("summary_step", default=None)
_records: ContextVar[Condition] = ContextVar("summary_condition", default=True)


def create_file_writer(
    logdir: str | os.PathLike[str],
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
    experimental_trackable: bool = False,
) -> SummaryWriter:
    """A writer of events into a folder."""
    del max_queue, flush_millis, name, experimental_trackable
    return SummaryWriter(os.fspath(logdir), filename_suffix or "")


create_noop_writer: Callable[[], AbstractContextManager[None]] = contextmanager(
    lambda: iter((None,))
)


def should_record_summaries() -> bool:
    """Whether summaries are written now."""
    condition = _records.get()
    return _writer.get() is not None and bool(condition() if callable(condition) else condition)


@contextmanager
def record_if(condition: Condition) -> Iterator[None]:
    """Summaries of the block are written while a condition holds."""
    with set_inside(_records, condition):
        yield


def get_step() -> Step:
    return _step.get()


def set_step(step: Step) -> None:
    """The step of summaries that name none."""
    _step.set(step)


def scalar(name: str, data: Value, step: Step = None, description: str | None = None) -> bool:
    """Write a number."""
    del description
    value = float(np.asarray(keras.ops.convert_to_numpy(data)).reshape(()))
    return _written(name, _float(2, value), step)


def image(
    name: str, data: Value, step: Step = None, max_outputs: int = 3, description: str | None = None
) -> bool:
    """Write images: batch × height × width × channels, 0 to 255 or between 0 and 1."""
    del description
    pixels = np.asarray(keras.ops.convert_to_numpy(data))
    if pixels.ndim != 4:
        raise ValueError(f"tf.summary.image takes 4 dimensions; got {pixels.ndim}.")
    if pixels.dtype.kind == "f":
        pixels = np.clip(pixels * 255.0 + 0.5, 0, 255)
    results = []
    for i, each in enumerate(pixels[:max_outputs].astype(np.uint8)):
        height, width, channels = each.shape
        sizes = _whole(1, height) + _whole(2, width) + _whole(3, channels)
        tag = f"{name}/image/{i}" if len(pixels) > 1 else name
        encoded = in_field(4, sizes + in_field(4, encode_png(each)))
        results.append(_written(tag, encoded, step))
    return all(results)


def histogram(
    name: str,
    data: Value,
    step: Step = None,
    buckets: int | None = None,
    description: str | None = None,
) -> bool:
    """Write how values are distributed."""
    del description
    values = np.asarray(keras.ops.convert_to_numpy(data), np.float64).reshape(-1)
    counts, edges = np.histogram(values, bins=buckets or _N_BUCKETS)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    body = _double(1, low) + _double(2, high) + _double(3, float(values.size))
    body += _double(4, float(values.sum())) + _double(5, float((values**2).sum()))
    body += in_field(6, edges[1:].astype("<f8").tobytes())
    body += in_field(7, counts.astype("<f8").tobytes())
    return _written(name, in_field(5, body), step)


def text(name: str, data: Value, step: Step = None, description: str | None = None) -> bool:
    """Write text."""
    del description
    content = data if isinstance(data, bytes) else str(data).encode()
    tensor = _whole(1, 7) + in_field(8, content)  # a tensor of strings
    plugin = in_field(9, in_field(1, in_field(1, b"text")))
    return _written(name, in_field(8, tensor) + plugin, step)


def graph(graph_data: object) -> bool:
    """Nothing: a compiled step has no graph of TensorFlow; `model.ipu_report()` has its own."""
    del graph_data
    return False


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    del name
    target = writer or _writer.get()
    if target is not None:
        target.flush()


def trace_on(
    graph: bool = True, profiler: bool = False, profiler_outdir: str | None = None
) -> None:
    """Traces of TensorFlow do not exist here."""
    del graph, profiler_outdir
    if profiler:
        raise keras_error(
            "tf.summary.trace_on(profiler=True) is TensorFlow's profiler.",
            hint="tremula run --report DIR, or model.ipu_report()",
        )


def trace_off() -> None:
    """Nothing was traced."""


def trace_export(name: str, step: Step = None, profiler_outdir: str | None = None) -> None:
    """Nothing was traced."""
    del name, step, profiler_outdir


def _written(name: str, value: bytes, step: Step) -> bool:
    step = _step.get() if step is None else step
    if step is None and _writer.get() is not None:
        raise ValueError("a summary needs step=…, or tf.summary.experimental.set_step(…) before.")
    writer = _writer.get()
    if writer is None or not should_record_summaries():
        return False
    assert step is not None, "checked above"
    writer.write(in_field(1, name.encode()) + value, int(step))
    return True
