"""Random ONNX graphs as data, and the model made of them.

A case lists nodes such as {"op": "Add", "ins": [0, 3], "axis": 0, "n": 1}; values are numbered:
inputs first, then the output of each node. Shapes are those
that onnx's reference evaluator gives.
"""

# ruff: noqa: ARG002 - makers of nodes share a signature

from random import Random

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.checker import check_model
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.shape_inference import infer_shapes

from tools.fuzz.case import Case, IllegalCase

UNARY = (
    "Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Exp", "Softplus", "Softsign", "Erf", "Identity",
    "Floor", "Ceil", "Round", "Sign", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish",
    "Mish", "Gelu", "Sin", "Cos", "Atan", "Flatten", "Shrink", "ThresholdedRelu", "Celu",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Greater", "Less", "Equal", "Div", "PRelu", "Mod")
ALONG = ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
REDUCED = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd")
SHAPED = ("Transpose", "Reshape", "Concat", "Slice", "Gather", "Unsqueeze", "ReduceSum", "Tile",
          "Expand", "Pad", "CumSum", "ArgMax", "TopK", "Where", "Clip", "MatMul", "Gemm",
          "LayerNormalization", "Split", "Squeeze", "DepthToSpace", "Einsum", "Trilu",
          "GatherElements", "MeanVarianceNormalization", "Cast", "OneHot", "Range")  # fmt: skip
OPSET = 20
MOST_ELEMENTS = 80


def generate(random: Random) -> Case:
    """Inputs, then nodes that take earlier values."""
    shapes = [random.choice(([3], [2, 3], [3, 2], [2, 1, 3], [1, 4, 2, 2])) for _ in range(2)]
    case = {"inputs": shapes, "nodes": [], "seed": random.randrange(1 << 16)}
    values = [np.zeros(shape, np.float32) for shape in shapes]
    for _ in range(random.randint(2, 8)):
        node = _node(random, values)
        try:
            result = evaluate({**case, "nodes": [*case["nodes"], node]})[-1]
        except IllegalCase:
            continue
        if 0 < result.size <= MOST_ELEMENTS and result.dtype == np.float32:
            case["nodes"].append(node)
            values.append(result)
    return case


def _node(random: Random, values: list[np.ndarray]) -> Case:
    first = random.randrange(len(values)) if random.random() < 0.5 else len(values) - 1
    shape, rank = values[first].shape, values[first].ndim
    group = random.choice((UNARY, UNARY, BINARY, BINARY, ALONG, REDUCED, SHAPED, SHAPED, SHAPED))
    group = group if rank else random.choice((UNARY, BINARY))  # a scalar has no axis
    op, axis = random.choice(group), random.randrange(max(rank, 1))
    like = [n for n, value in enumerate(values) if value.shape == shape]
    ins = [first]
    if group is BINARY or op in ("Concat", "Where", "MatMul", "Gemm"):
        ins.append(random.choice(like) if random.random() < 0.7 else random.randrange(len(values)))
    return {"op": op, "ins": ins, "axis": axis, "n": random.randint(1, 3)}


# -- the model -------------------------------------------------------------------------------------


def model_of(case: Case, *, all_outputs: bool = False) -> ModelProto:
    """The model; its outputs are the last values, or all of them."""
    maker = _Maker(case)
    last = len(case["inputs"]) + len(case["nodes"]) - 1
    first = len(case["inputs"]) if all_outputs else max(len(case["inputs"]), last - 1)
    inputs = [
        helper.make_tensor_value_info(f"v{n}", TensorProto.FLOAT, shape)
        for n, shape in enumerate(case["inputs"])
    ]
    outputs = [helper.make_value_info(f"v{n}", helper.make_tensor_type_proto(
        TensorProto.FLOAT, None)) for n in range(first, last + 1)]  # fmt: skip
    graph = helper.make_graph(maker.nodes, "main", inputs, outputs, maker.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


class _Maker:
    """Nodes of a case as ONNX's, with constants for shapes and axes."""

    def __init__(self, case: Case):
        self.nodes: list = []
        self.constants: list = []
        for number, node in enumerate(case["nodes"], len(case["inputs"])):
            if any(not 0 <= value < number for value in node["ins"]) or not node["ins"]:
                raise IllegalCase("values that exist")
            if not all(case["inputs"]):
                raise IllegalCase("inputs with an axis")
            self._add(node, [f"v{value}" for value in node["ins"]], f"v{number}")

    def constant(self, values: object, dtype: type = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def node(self, op: str, ins: list[str], outs: list[str], **attributes: object) -> None:
        self.nodes.append(helper.make_node(op, ins, outs, **attributes))

    def _add(self, node: Case, ins: list[str], out: str) -> None:
        op, axis, n = node["op"], node["axis"], node["n"]
        special = getattr(self, f"_{op}", None)
        if special is not None:
            special(ins, out, axis, n)
        elif op in ("Greater", "Less", "Equal"):
            self.node(op, ins, [f"{out}b"])
            self.node("Cast", [f"{out}b"], [out], to=TensorProto.FLOAT)
        elif op == "Mod":
            self.node("Mod", ins, [out], fmod=1)
        elif op in ALONG:
            self.node(op, ins, [out], axis=axis)
        elif op in REDUCED:
            self.node(op, [*ins, self.constant([axis])], [out], keepdims=n % 2)
        else:
            self.node(op, ins, [out])

    def _Transpose(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Transpose", ins, [out])

    def _Reshape(self, ins: list[str], out: str, axis: int, n: int) -> None:
        shape = [[-1], [-1, 1], [1, -1], [0, -1]][n % 4]
        self.node("Reshape", [*ins, self.constant(shape)], [out])

    def _Concat(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Concat", ins, [out], axis=axis)

    def _Slice(self, ins: list[str], out: str, axis: int, n: int) -> None:
        ends, steps = ([1 << 40], [n]) if n % 2 else ([-(1 << 40)], [-1])
        starts = [0] if n % 2 else [-1]
        more = [self.constant(each) for each in (starts, ends, [axis], steps)]
        self.node("Slice", [*ins, *more], [out])

    def _Gather(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Gather", [*ins, self.constant([0, -1, 0][:n])], [out], axis=axis)

    def _GatherElements(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("ArgMax", ins, [f"{out}i"], axis=axis, keepdims=1)
        self.node("GatherElements", [*ins, f"{out}i"], [out], axis=axis)

    def _Unsqueeze(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Unsqueeze", [*ins, self.constant([axis])], [out])

    def _Squeeze(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Squeeze", ins, [out])

    def _ReduceSum(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("ReduceSum", [*ins, self.constant([axis])], [out], keepdims=n % 2)

    def _Tile(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Shape", ins, [f"{out}s"])
        self.node("ConstantOfShape", [self.constant([axis + 1])], [f"{out}z"])
        self.node("Tile", [*ins, self.constant([n] * (axis + 1))], [out])

    def _Expand(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Expand", [*ins, self.constant([n, 1, 1])], [out])

    def _Pad(self, ins: list[str], out: str, axis: int, n: int) -> None:
        mode = ("constant", "reflect", "edge")[n % 3]
        axes = self.constant([axis])
        self.node("Pad", [*ins, self.constant([1, 1]), "", axes], [out], mode=mode)

    def _CumSum(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("CumSum", [*ins, self.constant(axis)], [out], reverse=n % 2, exclusive=n // 2 % 2)

    def _ArgMax(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("ArgMax", ins, [f"{out}i"], axis=axis, keepdims=n % 2)
        self.node("Cast", [f"{out}i"], [out], to=TensorProto.FLOAT)

    def _TopK(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("TopK", [*ins, self.constant([n])], [out, f"{out}i"], axis=axis, largest=n % 2)

    def _Where(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Greater", [ins[0], self.constant(0, np.float32)], [f"{out}b"])
        self.node("Where", [f"{out}b", ins[0], ins[-1]], [out])

    def _Clip(self, ins: list[str], out: str, axis: int, n: int) -> None:
        limits = [self.constant(-0.5 * n, np.float32), self.constant(0.25 * n, np.float32)]
        self.node("Clip", [*ins, *limits], [out])

    def _MatMul(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Transpose", [ins[-1]], [f"{out}t"])
        self.node("MatMul", [ins[0], f"{out}t"], [out])

    def _Gemm(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Gemm", [ins[0], ins[-1]], [out], transB=1, alpha=0.5)

    def _LayerNormalization(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("LayerNormalization", [*ins, self.constant(1.5, np.float32)], [out], axis=-1)

    def _Split(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Split", ins, [out, f"{out}x"], axis=axis, num_outputs=2)

    def _DepthToSpace(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("DepthToSpace", ins, [out], blocksize=2, mode="CRD" if n % 2 else "DCR")

    def _Einsum(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Einsum", [ins[0], ins[0]], [out], equation="...i,...j->...ij")

    def _Trilu(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("Trilu", [*ins, self.constant(n - 2)], [out], upper=n % 2)

    def _MeanVarianceNormalization(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("MeanVarianceNormalization", ins, [out], axes=[axis])

    def _Cast(self, ins: list[str], out: str, axis: int, n: int) -> None:
        to = (TensorProto.INT32, TensorProto.FLOAT16, TensorProto.INT64)[n % 3]
        self.node("Cast", ins, [f"{out}i"], to=to)
        self.node("Cast", [f"{out}i"], [out], to=TensorProto.FLOAT)

    def _OneHot(self, ins: list[str], out: str, axis: int, n: int) -> None:
        self.node("ArgMax", ins, [f"{out}i"], axis=axis, keepdims=0)
        limits = self.constant([0, 1], np.float32)
        self.node("OneHot", [f"{out}i", self.constant([4]), limits], [out])

    def _Range(self, ins: list[str], out: str, axis: int, n: int) -> None:
        numbers = [self.constant(each, np.float32) for each in (0, n, 0.5)]
        self.node("Range", numbers, [f"{out}r"])
        self.node("ReduceMean", ins, [f"{out}m"], keepdims=0)
        self.node("Mul", [f"{out}r", f"{out}m"], [out])


def inputs_of(case: Case, noise: float = 0.0) -> dict[str, np.ndarray]:
    """Inputs as random numbers."""
    random, shaking = (np.random.default_rng(case["seed"] + n) for n in (0, 1))
    result = {}
    for number, shape in enumerate(case["inputs"]):
        values = random.standard_normal(shape) + 0.01
        if noise:
            values = values * (1 + noise * shaking.standard_normal(shape))
        result[f"v{number}"] = values.astype(np.float32)
    return result


class PRelu(OpRun):
    """As the standard says: onnx's own looks for a fitting axis if slopes do not broadcast."""

    op_domain = ""

    def _run(self, x: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray]:
        return (np.where(x > 0, x, x * np.broadcast_to(slope, x.shape)).astype(x.dtype),)


def evaluate(case: Case, noise: float = 0.0) -> list[np.ndarray]:
    """The outputs that onnx's reference evaluator gives; an IllegalCase if it cannot."""
    try:
        model = model_of(case)
        check_model(infer_shapes(model, check_type=True, strict_mode=True))
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model, new_ops=[PRelu]).run(None, inputs_of(case, noise))
    except IllegalCase:
        raise
    except Exception as why:  # noqa: BLE001 - whatever it raises, there is nothing to compare
        raise IllegalCase(repr(why)[:200]) from None
    return [np.asarray(result) for result in results]
