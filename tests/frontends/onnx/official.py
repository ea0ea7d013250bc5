"""The official tests of ONNX backends: what they are, and how many pass.

The official runner counts "this backend is not supposed to implement it" as passed. Here it is a
failure, as is everything else that gives no result or a wrong one.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, SequenceProto, TensorProto, numpy_helper
from onnx.backend.base import Backend

_NODE_ROOM = "onnx.backend.test.case.node"
_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
MODEL_KINDS = ("simple", "pytorch-converted", "pytorch-operator")
# What a tile holds: 64-bit integers are 32-bit ones there, as they were with PopART.
_ON_TILES = {TensorProto.DataType.Value(t) for t in ("FLOAT", "FLOAT16", "INT32", "INT64", "BOOL")}
_OF_POPART = _ON_TILES | {
    TensorProto.DataType.Value(t) for t in "INT8 INT16 UINT8 UINT16 UINT32 UINT64 DOUBLE".split()
}
POPART_OPERATORS = frozenset(
    """Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization
    Cast Ceil Clip Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace
    Div Dropout Elu Equal Erf Exp Expand Flatten Floor GRU Gather Gemm GlobalAveragePool
    GlobalMaxPool Greater HardSigmoid Identity If InstanceNormalization IsInf IsNaN LRN LSTM
    LeakyRelu Less Log LogSoftmax Loop MatMul Max MaxPool Mean Min Mod Mul Neg Not OneHot Or PRelu
    Pad Pow RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike Reciprocal ReduceL1
    ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Resize RoiAlign Round Scan Scatter ScatterElements Selu Shape
    Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub
    Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze Upsample Where""".split()
)


@dataclass(frozen=True)
class OfficialCase:
    """A model with inputs and expected outputs."""

    name: str
    model: ModelProto
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def is_of_popart(self) -> bool:
        """Whether PopART knew its operators and the types of its inputs and outputs."""
        nodes = self.model.graph.node
        known = all(n.op_type in POPART_OPERATORS and n.domain in ("", "ai.onnx") for n in nodes)
        return known and self._has_types(_OF_POPART)

    @property
    def fits_tiles(self) -> bool:
        """Whether a tile can hold all of its inputs and outputs."""
        return self._has_types(_ON_TILES)

    def _has_types(self, types: set[int]) -> bool:
        values = [*self.model.graph.input, *self.model.graph.output]
        return all(
            value.type.WhichOneof("value") == "tensor_type"
            and value.type.tensor_type.elem_type in types
            for value in values
        )


def node_modules() -> list[str]:
    """The files of node tests, one for each operator."""
    package = import_module(_NODE_ROOM)
    return sorted(module.name for module in iter_modules(package.__path__))


def node_cases(modules: Sequence[str] | None = None) -> list[OfficialCase]:
    """The node tests of some files, by default of all; they are generated when first asked for."""
    chosen = set(node_modules() if modules is None else modules)
    package: Any = import_module(_NODE_ROOM)
    for name in sorted(chosen):
        if name not in _made:
            before = len(package._NodeTestCases)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                _import_all(f"{_NODE_ROOM}.{name}")
            _made[name] = [_of(case) for case in package._NodeTestCases[before:]]
    return [case for name in sorted(chosen) for case in _made[name]]


_made: dict[str, list[OfficialCase]] = {}


def _import_all(name: str) -> None:
    module = import_module(name)
    for inner in iter_modules(getattr(module, "__path__", [])):
        _import_all(f"{name}.{inner.name}")


def _of(case: Any) -> OfficialCase:
    sets = [([_value(v) for v in i], [_value(v) for v in o]) for i, o in case.data_sets]
    return OfficialCase(case.name, case.model, sets, case.rtol, case.atol)


def _value(value: Any) -> Any:
    """Data as backends take it: some tests hold protocol buffers or plain numbers."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return np.asarray(value)


def model_cases(kind: str) -> Iterator[OfficialCase]:
    """Models that ship with their data."""
    from onnx.backend.test.loader import load_model_tests

    for test in sorted(load_model_tests(kind=kind), key=lambda test: test.name):
        if test.model_dir is None:
            yield _of(test)
            continue
        folder = Path(test.model_dir)
        model = onnx.load(folder / "model.onnx")
        sets = [_data_set(path, model) for path in sorted(folder.glob("test_data_set_*"))]
        yield OfficialCase(test.name, model, sets, test.rtol, test.atol)


def _data_set(folder: Path, model: ModelProto) -> tuple[list[Any], list[Any]]:
    parts = []
    for word, values in (("input", model.graph.input), ("output", model.graph.output)):
        n = len(list(folder.glob(f"{word}_*.pb")))
        parts.append([_loaded(folder / f"{word}_{i}.pb", values[i].type) for i in range(n)])
    return parts[0], parts[1]


def _loaded(path: Path, kind: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    if kind.WhichOneof("value") == "sequence_type":
        return numpy_helper.to_list(SequenceProto.FromString(data))
    return numpy_helper.to_array(TensorProto.FromString(data))


def real_cases() -> Iterator[OfficialCase]:
    """Well-known nets with constant weights, and what they give for one input."""
    from onnx.backend.test.loader import load_model_tests

    tolerances = {test.name: test.rtol for test in load_model_tests(kind="real")}
    for path in sorted((_DATA / "light").glob("*.onnx")):
        model = onnx.load(path)
        own = {tensor.name for tensor in model.graph.initializer}
        inputs = [_even(value) for value in model.graph.input if value.name not in own]
        outputs = [
            numpy_helper.to_array(TensorProto.FromString(file.read_bytes()))
            for file in sorted(path.parent.glob(f"{path.stem}_output_*.pb"))
        ]
        name = f"test_{path.stem.removeprefix('light_')}"
        yield OfficialCase(name, model, [(inputs, outputs)], tolerances.get(name, 1e-3), 1e-7)


def _even(value: onnx.ValueInfoProto) -> np.ndarray:
    """The input of a light model: numbers from 0 to 1, evenly spaced."""
    shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
    n = int(np.prod(shape))
    return (np.arange(n).reshape(shape) / n).astype(np.float32)


def failure_of(case: OfficialCase, backend: type[Backend], least_atol: float = 0.0) -> str:
    """What is wrong with a backend's results, or an empty text."""
    from onnx.backend.test.runner import Runner

    try:
        prepared = backend.prepare(case.model, "CPU")
        assert prepared is not None, "the backend prepared nothing"
        for inputs, outputs in case.data_sets:
            result = prepared.run(inputs)
            atol = max(case.atol, least_atol)
            Runner.assert_similar_outputs(outputs, result, case.rtol, atol)  # pyright: ignore[reportArgumentType]
    except Exception as error:  # noqa: BLE001 - any of them is a failure of this case alone
        return f"{case.name}: {type(error).__name__}: {error}"
    return ""
