"""Expressions in PopART: an ONNX graph of a Builder, in an inference or a training session."""

import contextlib
from collections.abc import Sequence

import numpy as np

import popart
from tools.fuzz.case import Case
from tools.fuzz.expressions.operations import evaluate
from tools.fuzz.expressions.reference import LEARNING_RATE, data_of

N_TILES = 8
ALL = popart.AnchorReturnType("All")


class BuilderAlgebra:
    """The primitive operations of a Builder; a value is the name of a tensor."""

    def __init__(self, builder: "popart.Builder", dtype: np.dtype):
        self.builder, self.onnx, self.dtype = builder, builder.aiOnnx, dtype

    def shape(self, x: str) -> tuple[int, ...]:
        return tuple(self.builder.getTensorShape(x))

    def constant(self, number: float, like: str) -> str:  # noqa: ARG002
        return self.onnx.constant(np.array(number, self.dtype))

    def add(self, x: str, y: str) -> str:
        return self.onnx.add([x, y])

    def sub(self, x: str, y: str) -> str:
        return self.onnx.sub([x, y])

    def mul(self, x: str, y: str) -> str:
        return self.onnx.mul([x, y])

    def div(self, x: str, y: str) -> str:
        return self.onnx.div([x, y])

    def maximum(self, x: str, y: str) -> str:
        return self.onnx.max([x, y])

    def unary(self, name: str, x: str) -> str:
        return getattr(self.onnx, name)([x])

    def matmul(self, x: str, y: str) -> str:
        return self.onnx.matmul([x, y])

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.onnx.reshape([x, self.onnx.constant(np.array(shape, np.int64))])

    def transpose(self, x: str, order: Sequence[int]) -> str:
        return self.onnx.transpose([x], list(order))

    def reduce(self, name: str, x: str, axis: int) -> str:
        return getattr(self.onnx, f"reduce{name}")([x], axes=[axis], keepdims=1)

    def softmax(self, x: str, axis: int) -> str:
        """ONNX's of opset 10 flattens from the axis on, so the axis has to be the last one."""
        rank = len(self.shape(x))
        order = [*(d for d in range(rank) if d != axis), axis]
        turned = self.onnx.softmax([self.transpose(x, order)], rank - 1)
        return self.transpose(turned, [order.index(d) for d in range(rank)])

    def concat(self, parts: Sequence[str], axis: int) -> str:
        return self.onnx.concat(list(parts), axis)

    def slice(self, x: str, axis: int, begin: int, end: int) -> str:
        numbers = [self.onnx.constant(np.array([n], np.int64)) for n in (begin, end, axis)]
        return self.onnx.slice([x, *numbers])


def run(case: Case, *, on_tiles: bool) -> list[np.ndarray]:
    """Outputs of each step, then the weights."""
    data, weights = data_of(case)
    builder = popart.Builder()
    shape = [case["batch"], *case["shape"]]
    kind = "FLOAT16" if case["half"] else "FLOAT"
    x = builder.addInputTensor(kind, shape, "x")
    names = [builder.addInitializedInputTensor(w, f"w{i}") for i, w in enumerate(weights)]
    out = _expression(case, builder, data.dtype, x, names)
    builder.addOutputTensor(out)
    session = _session(case, builder, out, on_tiles)
    session.prepareDevice()
    session.weightsFromHost()
    anchors, n = session.initAnchorArrays(), case["replicas"] * case["accumulation"]
    value_shape = builder.getTensorShape(out)[1:]
    steps = data if not case.get("pipelined") or case["training"] else data[None]
    outputs = []
    for samples in steps:
        feeds = samples.reshape(-1, n, *shape) if samples.ndim > len(shape) else samples
        session.run(popart.PyStepIO({"x": np.ascontiguousarray(feeds)}, anchors))
        outputs.append(np.array(anchors[out]).reshape(-1, n * case["batch"], *value_shape))
    results = [row for part in outputs for row in part]
    return [*results, *_weights(session, names, weights)] if case["training"] else results


def _expression(
    case: Case, builder: "popart.Builder", dtype: np.dtype, x: str, names: list[str]
) -> str:
    """The nodes, the first half on chip 0 and the rest on chip 1 if there are two."""
    algebra = BuilderAlgebra(builder, dtype)
    if case["chips"] == 1:
        return evaluate(case, algebra, x, names)
    values = _Placed(builder, len(case["nodes"]))
    # Copies, so that each chip has an operation, however few the expression has.
    with builder.virtualGraph(0), builder.pipelineStage(0):
        x = builder.aiOnnx.identity([x])
    out = evaluate(case, _PlacedAlgebra(algebra, values), x, names)
    with builder.virtualGraph(1), builder.pipelineStage(1):
        return builder.aiOnnx.identity([out])


class _Placed:
    """Counts primitive operations, and says which chip is next: the second once half are done."""

    def __init__(self, builder: "popart.Builder", n_nodes: int):
        self.builder, self.n_nodes, self.n_done = builder, n_nodes, 0

    def chip(self) -> int:
        self.n_done += 1
        return int(self.n_done > self.n_nodes // 2)


class _PlacedAlgebra:
    """The algebra with every operation on a chip."""

    def __init__(self, algebra: BuilderAlgebra, placed: _Placed):
        self._algebra, self._placed = algebra, placed
        self._chip = 0

    def __getattr__(self, name: str) -> object:
        function = getattr(self._algebra, name)
        if name == "shape":
            return function

        def make(*args: object) -> object:
            chip = self._placed.chip()
            with self._placed.builder.virtualGraph(chip), self._placed.builder.pipelineStage(chip):
                return function(*args)

        return make


def _session(
    case: Case, builder: "popart.Builder", out: str, on_tiles: bool
) -> "popart.TrainingSession | popart.InferenceSession":
    n_chips = case["chips"] * case["replicas"]
    choices = {"numIPUs": n_chips, "tilesPerIPU": N_TILES}
    manager = popart.DeviceManager()
    device = manager.createIpuModelDevice(choices) if on_tiles else manager.createCpuDevice()
    options = _options(case)
    if not case["training"]:
        n_batches = case["steps"] if case.get("pipelined") else 1
        flow = popart.DataFlow(n_batches, {out: ALL})
        return popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
    with _last_place(case, builder):
        square = builder.aiOnnx.mul([out, out])
        mean = popart.ReductionType.Mean
        loss = builder.aiGraphcore.identityloss([square], mean)
    optimizer = popart.SGD(
        {"defaultLearningRate": (LEARNING_RATE, False), "defaultMomentum": (case["momentum"], True)}
    )
    flow = popart.DataFlow(1, {out: ALL})
    return popart.TrainingSession(
        builder.getModelProto(), flow, loss, optimizer, device, userOptions=options
    )


def _last_place(case: Case, builder: "popart.Builder") -> object:
    if case["chips"] == 1:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    stack.enter_context(builder.virtualGraph(1))
    stack.enter_context(builder.pipelineStage(1))
    return stack


def _options(case: Case) -> "popart.SessionOptions":
    options = popart.SessionOptions()
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    if case["accumulation"] > 1:
        options.enableGradientAccumulation = True
        options.accumulationFactor = case["accumulation"]
    if case["replicas"] > 1:
        options.enableReplicatedGraphs = True
        options.replicatedGraphCount = case["replicas"]
    if case["chips"] > 1:
        options.virtualGraphMode = popart.VirtualGraphMode.Manual
        options.enablePipelining = case["pipelined"]
    if case["recompute"] and case["training"]:
        pipeline = popart.RecomputationType.Pipeline
        standard = popart.RecomputationType.Standard
        options.autoRecomputation = pipeline if case["pipelined"] else standard
    return options


def _weights(session: object, names: list[str], first: list[np.ndarray]) -> list[np.ndarray]:
    session.weightsToHost()
    result = {name: np.zeros_like(w) for name, w in zip(names, first, strict=True)}
    session.readWeights(popart.PyWeightsIO(result))
    return list(result.values())
