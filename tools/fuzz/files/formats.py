"""The formats: of each a small good file, how it is read, and which errors say that it is bad."""

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tests.sources import ROOT
from tremula.base.errors import PoplarError


@dataclass(frozen=True, slots=True)
class Format:
    """A format. `read` may raise one of `errors`, and nothing else."""

    make: Callable[[], bytes]
    read: Callable[[Path], object]
    suffix: str = ""
    is_text: bool = False
    errors: tuple[type[Exception], ...] = (PoplarError,)
    seal: Callable[[Path], None] | None = None  # makes checksums right again, as an attacker would


def _written(write: Callable[[Path], object], name: str) -> bytes:
    """What a function writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        written = write(path)
        return Path(written if isinstance(written, Path) else path).read_bytes()


# -- programs --------------------------------------------------------------------------------------


@cache
def _engine() -> object:
    """An engine that has run a small program with a loop, a branch and a stream."""
    from tools.fuzz.case import random_of
    from tools.fuzz.tiles.build import build
    from tools.fuzz.tiles.generate import generate
    from tremula import Engine

    for seed in range(100):
        case = generate(random_of("files", seed))
        if (case["chips"], case["replicas"]) == (1, 1) and case["sets"] and case["functions"]:
            built = build(case)
            engine = Engine(built.graph, built.programs, {"tremula.threads": 1}).load()
            built.connect(engine)
            engine.run(0)
            if engine.report().has_run:
                return engine
    raise AssertionError("one of a hundred programs does something")


def _executable() -> bytes:
    return _written(lambda path: _engine().executable.save(str(path)), "case.tremula")


def _read_executable(path: Path) -> None:
    from tremula import Executable, forecast
    from tremula.compiler.report.report import make_report

    executable = Executable.load(str(path))
    make_report(executable, None)
    forecast(executable)


def _seal_record(path: Path) -> None:
    """The digest of an executable file is made right again."""
    data = path.read_bytes()
    if len(data) > 52:
        digest = hashlib.blake2b(data[52:], digest_size=32).digest()
        path.write_bytes(data[:20] + digest + data[52:])


# -- reports and traces ----------------------------------------------------------------------------


def _report() -> bytes:
    from tremula.vision.report.write import report_of_engine

    return _written(lambda path: report_of_engine(_engine(), path.parent), "unused")


def _read_report(path: Path) -> None:
    from tremula.vision.analysis.summary import VIEWS
    from tremula.vision.pva import report as pva
    from tremula.vision.report.reader import open_report

    with open_report(path) as reader:
        for view in VIEWS.values():
            view(reader)
        report = pva.Report(reader)
        _ = report.execution.totalCycles, report.compilation.controlPrograms


def _seal_report(path: Path) -> None:
    from tremula.vision.report.seal import seal

    if len(path.read_bytes()) > 100:
        seal(path)


def _trace() -> bytes:
    from tremula.vision.trace import recorder

    def write(path: Path) -> Path:
        recorder.start(path.parent)
        with recorder.channel("mine").span("work", size=3):
            recorder.channel("mine").instant("now")
        recorder.Graph("load", "%").series("cpu").add(4)
        recorder.Heatmap("sizes", [0, 1, 2]).add([0.5, 1.5])
        return recorder.stop()

    return _written(write, "unused")


def _read_trace(path: Path) -> None:
    from tests.vision.report.fuzz import read_trace

    read_trace(path)


# -- descriptions in text --------------------------------------------------------------------------


def _chip() -> bytes:
    from tremula.hardware import chip
    from tremula.hardware.chip_files import chip_to_toml

    return chip_to_toml(chip("ipu2")).encode()


def _read_chip(path: Path) -> None:
    from tremula import load_chip

    load_chip(path)


def _system() -> bytes:
    from tremula.hardware import system
    from tremula.hardware.system_files import system_to_toml

    return system_to_toml(system("M2000")).encode()


def _read_system(path: Path) -> None:
    from tremula import load_system

    load_system(path)


SPACE = b"""name = "widths"

[models]
mlp = "train.py"

[chip]
tiles = [736, 1472]
sram = 638976

[options]
accumulation = [1, 4]
replicas = 2
"""


def _read_space(path: Path) -> None:
    from tremula.explore.space import load_space

    path.with_name("train.py").write_text("def main(): pass\n")
    load_space(path)


BUDGET = b"""total_cycles = 1_000_000
largest_tile_bytes = 600_000

[operations]
work = 1000

[categories]
vertex_code = 1_000_000
"""


def _read_budget(path: Path) -> None:
    from tremula.vision.analysis.budget import check_budget, load_budget
    from tremula.vision.report.reader import open_report

    with open_report(_report_file()) as reader:
        check_budget(reader, load_budget(path))


@cache
def _report_file() -> Path:
    path = Path(tempfile.mkdtemp(), "profile.pop")
    path.write_bytes(good_file("report"))
    return path


OPTIONS = b"""# of a training run
deviceIterations(4)
replicationFactor(2)
Training.gradientAccumulation(8)
Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
Precision.enableStochasticRounding(True)
setAvailableMemoryProportion({"IPU0": 0.5})
"""


def _read_options(path: Path) -> None:
    from tremula.frontends.poptorch.options.options import Options

    Options().loadFromFile(str(path))


def _options_errors() -> tuple[type[Exception], ...]:
    from tremula.frontends.poptorch.options.file import ConfigFileError

    return (PoplarError, ConfigFileError)


def _gpt() -> bytes:
    return next((ROOT / "examples" / "popxl").rglob("tiny.toml")).read_bytes()


def _read_gpt(path: Path) -> None:
    from tremula.garden.models.gpt3.config import load_config

    load_config(path)


def _rows() -> bytes:
    return b"".join(
        (ROOT / "src/tremula/validate/data/published.csv").read_bytes().splitlines(True)[:6]
    )


def _read_rows(path: Path) -> None:
    from tremula.validate.rows import read_rows

    read_rows(path)


def _manifest() -> bytes:
    return next((ROOT / "src/tremula/garden/applications").glob("*/*.toml")).read_bytes()


def _read_manifest(path: Path) -> None:
    from tremula.garden.catalogue.manifest import read_manifest

    folder = path.parent / "application"
    folder.mkdir(exist_ok=True)
    source = next((ROOT / "src/tremula/garden/applications").glob("*/*.toml"))
    (folder / source.name).write_bytes(path.read_bytes())
    read_manifest(folder)


# -- models and data -------------------------------------------------------------------------------


def _onnx() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    def info(name: str, shape: tuple[int, ...]) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    shape = numpy_helper.from_array(np.array([3, 1]), "s")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=1),
        helper.make_node("Reshape", ["b", "s"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "main", [info("x", (1, 2))], [info("y", (3, 1))], [weight, shape]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return model.SerializeToString()


def _read_onnx(path: Path) -> None:
    from tremula.frontends.onnx import import_model

    imported = import_model(path)
    feeds = {value.name: np.ones((1, 2), np.float32) for value in imported.inputs}
    imported.run(feeds, [value.name for value in imported.outputs][:1])


def _model() -> object:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())


def _poptorch() -> bytes:
    import torch

    import poptorch

    def write(path: Path) -> None:
        model = poptorch.inferenceModel(_model())
        model.compileAndExport(str(path), torch.ones(1, 2))
        model.destroy()

    return _written(write, "model.poptorch")


def _read_poptorch(path: Path) -> None:
    import poptorch

    poptorch.load(str(path)).destroy()


def _read_poptorch_executable(path: Path) -> None:
    from tremula.frontends.poptorch.executor.saving import load_executable

    load_executable(path, training=False)


def _records() -> bytes:
    from tremula.frontends.keras.tensorflow import records as tf

    def write(path: Path) -> None:
        features = {
            "a": tf.Feature(int64_list=tf.Int64List(value=[1, 2, 3])),
            "b": tf.Feature(float_list=tf.FloatList(value=[0.5])),
        }
        example = tf.Example(features=tf.Features(feature=features))
        with tf.TFRecordWriter(str(path)) as writer:
            for _ in range(3):
                writer.write(example.SerializeToString())

    return _written(write, "records")


def _read_tf_records(path: Path) -> None:
    from tremula.frontends.keras.tensorflow.parsing import FixedLenFeature, parse_single_example
    from tremula.frontends.keras.tensorflow.records import read_records

    features = {"a": FixedLenFeature([3], "int64"), "b": FixedLenFeature([], "float32")}
    for record in read_records(path):
        parse_single_example(record, features)


def _columns() -> bytes:
    import torch
    from torch_geometric.data import Data

    from tremula.frontends.geometric.feeding.columns import GraphColumns

    graphs = [
        Data(x=torch.ones(n, 2), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([n]))
        for n in (2, 3)
    ]
    return _written(lambda path: GraphColumns.from_dataset(graphs).save(path), "graphs.npz")


def _read_columns(path: Path) -> None:
    from tremula.frontends.geometric.feeding.columns import GraphColumns

    columns = GraphColumns.load(path)
    for number in range(len(columns)):
        _ = columns[number]


# -- requests --------------------------------------------------------------------------------------


@cache
def _served() -> object:
    from tremula.serving.program import program_from_call

    example = [np.zeros((4, 4), np.float32), np.zeros((4,), np.int32)]
    names = {"input_names": ["x", "tag"], "output_names": ["sum", "tag_out"]}
    return program_from_call(
        lambda batch: [batch[0].sum(1), batch[1]], example, name="rows", platform="test", **names
    )


def _request() -> bytes:
    tensors = [
        {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [[0, 1, 2, 3], [1, 2.5, 3, 4]]},
        {"name": "tag", "datatype": "INT32", "shape": [2], "data": [7, 8]},
    ]
    outputs = [{"name": "sum", "parameters": {"binary_data": True}}]
    return json.dumps({"id": "42", "inputs": tensors, "outputs": outputs}).encode()


def _read_request(path: Path) -> None:
    from tremula.serving.messages import read_request

    read_request(path.read_bytes(), None, _served())


def _binary_request() -> bytes:
    tensors = [
        {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}},
        {"name": "tag", "datatype": "INT32", "shape": [1], "parameters": {"binary_data_size": 4}},
    ]
    head = json.dumps({"inputs": tensors}).encode()
    return f"{len(head)}\n".encode() + head + np.ones(4, "<f4").tobytes() + bytes(4)


def _read_binary_request(path: Path) -> None:
    from tremula.serving.messages import read_request

    length, _, body = path.read_bytes().partition(b"\n")
    read_request(body, length.decode("latin-1"), _served())


def _request_errors() -> tuple[type[Exception], ...]:
    from tremula.serving.errors import RequestError

    return (RequestError,)


def _state() -> bytes:
    from tremula.hardware import system
    from tremula.system.web.server import STATE_FILE, open_controller

    def write(path: Path) -> Path:
        open_controller(path.parent, "c0", system("M2000")).close()
        return path.parent / STATE_FILE

    return _written(write, "unused")


def _read_state(path: Path) -> None:
    from tremula.hardware import system
    from tremula.system.web.server import STATE_FILE, open_controller

    folder = path.parent / "state"
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    (folder / STATE_FILE).write_bytes(path.read_bytes())
    open_controller(folder, "c0", system("M2000")).close()


FORMATS: dict[str, Format] = {
    "executable": Format(_executable, _read_executable, ".tremula"),
    "sealed executable": Format(_executable, _read_executable, ".tremula", seal=_seal_record),
    "report": Format(_report, _read_report, ".pop"),
    "sealed report": Format(_report, _read_report, ".pop", seal=_seal_report),
    "trace": Format(_trace, _read_trace, ".pvti"),
    "chip": Format(_chip, _read_chip, ".toml", is_text=True),
    "system": Format(_system, _read_system, ".toml", is_text=True),
    "space": Format(lambda: SPACE, _read_space, ".toml", is_text=True),
    "budget": Format(lambda: BUDGET, _read_budget, ".toml", is_text=True),
    "options": Format(
        lambda: OPTIONS, _read_options, ".cfg", is_text=True, errors=_options_errors()
    ),
    "gpt": Format(_gpt, _read_gpt, ".toml", is_text=True),
    "measurements": Format(_rows, _read_rows, ".csv", is_text=True),
    "manifest": Format(_manifest, _read_manifest, ".toml", is_text=True),
    "onnx": Format(_onnx, _read_onnx, ".onnx"),
    "poptorch": Format(_poptorch, _read_poptorch, ".poptorch"),
    "poptorch executable": Format(_poptorch, _read_poptorch_executable, ".poptorch"),
    "records": Format(_records, _read_tf_records, ".tfrecord", errors=(PoplarError, ValueError)),
    "graphs": Format(_columns, _read_columns, ".npz"),
    "request": Format(_request, _read_request, ".json", is_text=True, errors=_request_errors()),
    "binary request": Format(
        _binary_request, _read_binary_request, ".bin", is_text=True, errors=_request_errors()
    ),
    "state": Format(_state, _read_state, ".sqlite"),
}


@cache
def good_file(name: str) -> bytes:
    """A good file of a format; made once in a process."""
    return FORMATS[name].make()
