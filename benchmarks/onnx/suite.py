"""The ONNX figures: official tests that pass, speed against onnxruntime and PyTorch, import."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure, Suite
from benchmarks.measure import peak_rss_of, ratio
from tremula.base.errors import RuntimeFailure

if TYPE_CHECKING:  # PyTorch and onnx are loaded where they are used
    from onnx.backend.base import Backend

    from tests.frontends.onnx.official import OfficialCase
    from tremula.garden.models.onnx_exports import Exported

SUITE = Suite("onnx")
TILE_ATOL = 1e-6  # sums of tiles are in another order


def _share(
    cases: "Iterable[OfficialCase]", backend: "type[Backend]", least_atol: float = 0.0
) -> float:
    """How many of a hundred pass."""
    from tests.frontends.onnx.official import failure_of

    results = [not failure_of(case, backend, least_atol) for case in cases]
    return 100 * sum(results) / len(results)


@SUITE.measurement("official")
def official() -> Iterator[Figure]:
    """Node tests and models of onnx, on the host."""
    from tests.frontends.onnx.official import MODEL_KINDS, model_cases, node_cases, real_cases
    from tremula.frontends.onnx.backend import OnnxBackend

    cases = node_cases()
    yield Figure.of("node tests", len(cases), "", "== 1884")
    yield Figure.of("node tests that pass", _share(cases, OnnxBackend), "%", ">= 94")
    of_popart = [case for case in cases if case.is_of_popart]
    name = f"node tests of PopART's operators and types ({len(of_popart)})"
    yield Figure.of(name, _share(of_popart, OnnxBackend), "%", ">= 99")
    for kind in MODEL_KINDS:
        yield Figure.of(f"{kind} models", _share(model_cases(kind), OnnxBackend), "%", "== 100")
    yield Figure.of("real models", _share(real_cases(), OnnxBackend), "%", "== 100")


@SUITE.measurement("tiles")
def tiles() -> Iterator[Figure]:
    """The node tests whose values a tile can hold, vertex by vertex."""
    from tests.frontends.onnx.official import node_cases
    from tremula.frontends.onnx.backend import TileBackend

    cases = [case for case in node_cases() if case.fits_tiles]
    share = _share(cases, TileBackend, TILE_ATOL)
    yield Figure.of(f"node tests on tiles ({len(cases)})", share, "%", ">= 85")


@SUITE.measurement("speed")
def speed() -> Iterator[Figure]:
    """Inference on one thread, in seconds of its processor."""
    import torch

    from tremula.garden.models.onnx_exports import export_bert, export_resnet

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, export in (("ResNet-50", export_resnet), ("BERT-base", export_bert)):
            with tempfile.TemporaryDirectory() as folder:
                yield from _speed_of(name, export(Path(folder, "model.onnx")))
    finally:
        torch.set_num_threads(n_threads)


def _speed_of(name: str, exported: "Exported") -> Iterator[Figure]:
    import torch

    inputs = tuple(exported.inputs.values())
    run_ours, run_theirs = _ours(exported), _onnxruntimes(exported)

    def run_plain() -> None:
        with torch.no_grad():
            exported.module(*inputs)

    for other, run in (("onnxruntime", run_theirs), ("PyTorch", run_plain)):
        bar = "<= 1.3" if other == "onnxruntime" else "<= 1.0"
        result = ratio(run_ours, run, rounds=5, min_time_s=0.0, clock=time.process_time)
        yield Figure.of(f"{name}, inductor", result.value, f"× {other}", bar)


def _ours(exported: "Exported") -> Callable[[], Any]:
    from tremula.frontends.onnx import import_model
    from tremula.frontends.onnx.compiled import compile_model
    from tremula.ir.settings import host_settings

    host = replace(host_settings(), host="inductor", device="cpu")
    compiled = compile_model(import_model(exported.path), exported.inputs, host=host)
    inputs = [exported.inputs[name] for name in compiled.input_names]
    return lambda: compiled(*inputs)


def _onnxruntimes(exported: "Exported") -> Callable[[], Any]:
    try:
        import onnxruntime
    except ImportError:
        raise RuntimeFailure(
            "the figures compare with onnxruntime, which is not installed.",
            hint="pip install onnxruntime",
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(exported.path), options)
    feeds = {name: tensor.numpy() for name, tensor in exported.inputs.items()}
    return lambda: session.run(None, feeds)


_FIRST_RESULT = """
import time, torch
from tremula.onnx import compile_model, import_model
torch.set_num_threads(1)
begin = time.process_time()
imported = import_model({path!r})
words = torch.zeros(1, 128, dtype=torch.int64)
inputs = {{"words": words, "mask": torch.ones_like(words)}}
compiled = compile_model(imported, inputs)
compiled(*(inputs[name] for name in compiled.input_names))
print(time.process_time() - begin)
"""


@SUITE.measurement("import")
def importing() -> Iterator[Figure]:
    """A file of 440 MB, from nothing to the first result."""
    from tremula.garden.models.onnx_exports import export_bert

    with tempfile.TemporaryDirectory() as folder:
        path = export_bert(Path(folder, "bert.onnx")).path
        usage = peak_rss_of(_FIRST_RESULT.format(path=str(path)))
    yield Figure.of("BERT-base, file to first result", float(usage.output), "CPU s", "<= 6")
