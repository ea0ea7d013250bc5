"""What `popart._internal.ir` shows of a program: views of operations, tensors and graphs by class.

Scripts that look into a graph (`graph._pb_graph.getOps()`) find operations as objects of a class
for each kind, with a few questions they answer. Nothing can be changed through a view.
"""

import logging
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tremula.base.errors import suggest
from tremula.frontends.popart.data_flow import DataFlow
from tremula.frontends.popart.enums import TileSet
from tremula.frontends.popxl.core.aliases import written_operands
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import FUNCTIONS, ROWS, VIEWS
from tremula.frontends.popxl.core.tensor import Constant, Tensor, Variable

if TYPE_CHECKING:
    from tremula.frontends.popart.options.options import SessionOptions
    from tremula.frontends.popxl.core.graph import Graph
    from tremula.frontends.popxl.core.ir import Ir


LOG = logging.getLogger("tremula.popxl")


class TensorType(Enum):
    """What a tensor is: a value of the program, of the host, or of a stream."""

    ActGrad = 0
    Const = 1
    Stream = 2
    Variable = 3


class MatMulPartialsType(Enum):
    """The type of a product's partial sums."""

    HALF = 0
    FLOAT = 1


@dataclass(frozen=True)
class OptimizerValue:
    """A number of an optimiser, and whether it is fixed in the program."""

    value: float
    is_const: bool = True

    def val(self) -> float:
        return self.value

    def isConst(self) -> bool:
        return self.is_const


class OpView:
    """An operation as PopART's classes show it."""

    def __init__(self, op: Op):
        self._op = op

    @property
    def id(self) -> int:
        return self._op.id

    @property
    def name(self) -> str:
        return self._op.name

    def opType(self) -> str:
        name = type(self).__name__
        return "MultiExchange" if name == "MultiExchangeOp" else self._op.kind

    def inTensor(self, index: int) -> "TensorView":
        return TensorView(self._op.inputs[index])

    def outTensor(self, index: int) -> "TensorView":
        return TensorView(self._op.outputs[index])

    def inId(self, index: int) -> str:
        return self._op.inputs[index].id

    def outId(self, index: int) -> str:
        return self._op.outputs[index].id

    def hasInput(self, index: int) -> bool:
        return index < len(self._op.inputs)

    def hasOutput(self, index: int) -> bool:
        return index < len(self._op.outputs)

    def getInputTensors(self) -> list["TensorView"]:
        return [TensorView(t) for t in self._op.inputs]

    def getOutputTensors(self) -> list["TensorView"]:
        return [TensorView(t) for t in self._op.outputs]

    def getInputIds(self) -> list[str]:
        return [t.id for t in self._op.inputs]

    def getOutputIds(self) -> list[str]:
        return [t.id for t in self._op.outputs]

    def modifiesIndex(self, index: int) -> bool:
        return index in written_operands(self._op)

    def isOptimizerOp(self) -> bool:
        compute = self._op.row.compute
        return compute is not None and compute.__module__.endswith("var_updates")

    def getGraph(self) -> "GraphView":
        return GraphView(self._op.graph)

    def getPartialsType(self) -> "MatMulPartialsType":
        """The type of a product's partial sums: its own, or the session's."""
        own = self._op.attributes["partials_type"]
        name = own.name if own else self._op.graph.ir.session_options.partialsTypeMatMuls
        is_half = name in {"float16", "half"}
        return MatMulPartialsType.HALF if is_half else MatMulPartialsType.FLOAT

    def getFactor(self) -> "OptimizerValue":
        """The factor of an update: a number of the program, or 0 if a tensor has it."""
        f = self._op.attributes.get("f")
        return OptimizerValue(0.0 if f is None else float(f), is_const=f is not None)

    def getAxis(self) -> int:
        return self._op.attributes["axis"]

    def hasVirtualGraphId(self) -> bool:
        return True

    def getVirtualGraphId(self) -> int:
        return self._op.ipu

    def hasPipelineStage(self) -> bool:
        return self._op.stage is not None

    def getPipelineStage(self) -> int | None:
        return self._op.stage

    def getCalledGraphs(self) -> list["GraphView"]:
        return [GraphView(graph) for graph in self._op.graphs]

    def getSettings(self) -> SimpleNamespace:
        op = self._op
        return SimpleNamespace(
            name=op.name, vgraphId=op.ipu, pipelineStage=op.stage, schedulePriority=0.0,
            tileSet=TileSet.IO if op.tile_set == "io" else TileSet.Compute,
        )  # fmt: skip

    def __repr__(self) -> str:
        return repr(self._op)


# Classes that no row of the table makes, for those who ask whether a graph holds one.
_OTHERS = """
    Call Loop If Init HostLoad HostStore RemoteLoad RemoteLoadInplace RemoteStore RemoteCodeLoad
    PrintTensor MultiExchange ReplicatedAllGather ReplicatedAllReduce ReplicatedAllReduceInplace
    ReplicatedReduceScatter AddArg0Grad AddArg1Grad MulArg0Grad MulArg1Grad Nlll
""".split()
_classes: dict[str, type[OpView]] = {}


def class_of(name: str) -> type[OpView]:
    """The class of operations of a kind, such as "AddOp"."""
    if name not in _classes:
        FUNCTIONS.rows()  # loads the operations
        known = {row.view_class for row in ROWS.values()} | {f"{kind}Op" for kind in _OTHERS}
        if f"{name}Op" in known:  # PopART leaves the ending out for some, such as IsInf
            return class_of(f"{name}Op")
        if name not in known and not name.endswith("GradOp"):
            raise AttributeError(
                f"popart._internal.ir.op has no class {name!r}: {suggest(name, known)}"
            )
        _classes[name] = type(name, (OpView,), {"__doc__": f"Operations of kind {name[:-2]}."})
    return _classes[name]


def view_of(op: Op) -> OpView:
    return class_of(op.row.view_class)(op)


class TensorView:
    """A tensor as PopART shows it."""

    def __init__(self, t: Tensor):
        self._tensor = t

    @property
    def popxl_object(self) -> Tensor:
        return self._tensor

    @property
    def id(self) -> str:
        return self._tensor.id

    @property
    def info(self) -> SimpleNamespace:
        t = self._tensor
        return SimpleNamespace(
            shape=lambda: list(t.shape), nelms=lambda: t.nelms, rank=lambda: t.rank,
            data_type_lcase=lambda: t.dtype.name, metaShape=lambda: list(t.meta_shape),
        )  # fmt: skip

    def tensorType(self) -> TensorType:
        if isinstance(self._tensor, Variable):
            return TensorType.Variable
        if isinstance(self._tensor, Constant):
            return TensorType.Const
        is_stream = self._tensor.id in self._tensor.ir.stream_of_tensor
        return TensorType.Stream if is_stream else TensorType.ActGrad

    def hasTensorData(self) -> bool:
        return isinstance(self._tensor, Variable | Constant)

    def isAliased(self) -> bool:
        """Whether another tensor is in the same memory."""
        t = self._tensor
        return any(
            t in op.inputs and (op.row.is_view or bool(op.row.modifies)) for op in t.graph.ops
        )

    def hasProducer(self) -> bool:
        return self._tensor.producer is not None

    def getProducer(self) -> OpView:
        if self._tensor.producer is None:
            raise ValueError(f"No operation makes {self._tensor.id}")
        return view_of(self._tensor.producer)

    def getGraph(self) -> "GraphView":
        return GraphView(self._tensor.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorView) and self._tensor == other._tensor

    def __hash__(self) -> int:
        return hash(self._tensor)


class GraphView:
    """A graph as PopART shows it."""

    def __init__(self, graph: "Graph"):
        self._graph = graph

    @property
    def popxl_object(self) -> "Graph":
        return self._graph

    @property
    def id(self) -> str:
        return self._graph.id

    def getOps(self) -> list[OpView]:
        """The operations; transfers that were merged are one, where the last of them is."""
        ops = self._graph.ops
        numbers = [op.attributes.get("exchange") for op in ops]
        result = []
        for i, (op, number) in enumerate(zip(ops, numbers, strict=True)):
            is_merged = number is not None and numbers.count(number) > 1
            if not is_merged:
                result.append(view_of(op))
            elif number not in numbers[i + 1 :]:
                result.append(class_of("MultiExchangeOp")(op))
        return result

    def getOpSchedule(self, *_options: object) -> list[OpView]:
        """The operations in the order they run."""
        return self.getOps()

    def getOpIds(self) -> list[int]:
        return [op.id for op in self._graph.ops]

    def getTensor(self, id: str) -> TensorView:
        return TensorView(self._graph.get_tensor(id))

    def getTensorIds(self) -> list[str]:
        return [t.id for t in self._graph.tensors]

    def getInputIds(self) -> list[str]:
        return [t.id for t in self._graph.inputs]

    def getOutputIds(self) -> list[str]:
        return [t.id for t in self._graph.outputs]

    def getGraphString(self) -> str:
        return self._graph.id

    def getCalledGraphs(self) -> list["GraphView"]:
        return [GraphView(graph) for graph in self._graph.called_graphs]

    def setCanBeRecursivelyAutodiffed(self, value: bool) -> None:
        """Whether autodiff of a caller may differentiate this graph."""
        self._graph.is_differentiable = value

    def getCanBeRecursivelyAutodiffed(self) -> bool:
        return self._graph.is_differentiable

    def __contains__(self, id: str) -> bool:
        return any(t.id == id for t in self._graph.tensors)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphView) and self._graph is other._graph

    def __hash__(self) -> int:
        return hash(self._graph)


class IrView:
    """A program as PopART shows it."""

    def __init__(self, ir: "Ir"):
        self._ir = ir

    @property
    def popxl_object(self) -> "Ir":
        return self._ir

    def getAllGraphs(self) -> list[GraphView]:
        return [GraphView(graph) for graph in self._ir.graphs]

    def getMainGraph(self) -> GraphView:
        return GraphView(self._ir.main_graph)

    def getGraph(self, id: str) -> GraphView:
        return GraphView(self._ir.graph_of_id(id))

    def getSessionOptions(self) -> "SessionOptions":
        """The options of the program's sessions: those that are modelled count, others are kept."""
        return self._ir.session_options

    def getId(self) -> int:
        return self._ir.id

    def getDataFlow(self) -> "DataFlow":
        return self._ir.data_flow

    def setDataFlow(self, dataFlow: "DataFlow") -> None:
        """Batches of a step, which are transfers of a run, and the streams that come back."""
        self._ir.data_flow = dataFlow
        self._ir.num_host_transfers = dataFlow.batchesPerStep()

    def logIr(self) -> None:
        """Write all graphs to the log."""
        for graph in self._ir.graphs:
            LOG.debug("%s", graph.id or "main")
            for op in graph.ops:
                LOG.debug("  %r", op)

    def updateVertices(self) -> None:
        """Operations and tensors are up to date at any time."""

    def setPatterns(self, patterns: object) -> None:
        """Patterns change how PopART writes a program, not what it computes."""

    def removeIsolatedTensors(self, retainUsedIOTensors: bool = True) -> None:
        """Tensors that nothing uses take no memory."""

    def removeIsolatedGraphs(self) -> None:
        """Graphs that nothing calls are not executed."""

    def applyPreAliasPatterns(self, graph: "GraphView") -> None:
        """Patterns change how PopART writes a graph, not what it computes."""

    def session_on(self, device: object) -> object:
        """What `popart.InferenceSession.fromIr` returns for a program."""
        return VIEWS["session"](self._ir, device)


VIEWS.update(tensor=TensorView, graph=GraphView, ir=IrView)
