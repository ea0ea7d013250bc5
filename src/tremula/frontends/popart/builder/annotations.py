"""What a script says about operations beyond their mathematics: attributes of nodes, and scopes."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

from tremula.base.errors import suggest
from tremula.frontends.popart.builder.graph import GraphInProgress, values_of
from tremula.frontends.popart.enums import RecomputeType, TensorStorage
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.locations import TensorLocation
from tremula.ir.origin import Choices

VIRTUAL_GRAPH = "__ipu_number"
PIPELINE_STAGE = "__pipeline_stage"
EXECUTION_PHASE = "__execution_phase"
RECOMPUTE = "__recompute_output_in_backward_pass"
LOCATION = "__output_tensor_location"
PRIORITY = "__schedule_priority"
COMM_GROUP = "__collectiveCommGroup"
OUTLINE = "__outline"
EXCLUDED_PATTERNS = "__exclude_patterns"
PARTIALS = "__partials_type"
MEMORY = "__available_memory_proportion"
SERIALIZE_MODE = "__matmul_serialize_mode"
SERIALIZE_FACTOR = "__matmul_serialize_factor"
SERIALIZE_PRECISION = "__matmul_serialize_keep_precision"
INPLACE_NAMES, INPLACE_PRIORITIES = "__inplace_op_names", "__inplace_op_priorities"
DITHERING = "__enable_conv_dithering"

SERIALIZE_MODES = ("none", "input_channels", "output_channels", "reducing_dim")
PARTIALS_TYPES = ("half", "float")
_PARTIALS_NAMES = {"FLOAT": "float", "FLOAT16": "half", "HALF": "half"}
Ids = str | Iterable[str]


class Annotations:
    """Reads and writes attributes of nodes, which are named by the tensors they make.

    A method of placement takes ids, or a value alone: then it is a context in which every
    new operation gets it.
    """

    _graph: GraphInProgress
    _in_force: dict[str, Any]

    # -- attributes of a node ----------------------------------------------------------------------

    def addNodeAttribute(
        self, attributeName: str, attributeValue: object, nodeOutputNames: Ids
    ) -> None:
        """Set an attribute of the operation that makes these tensors; it must not have it."""
        node = self._node(nodeOutputNames)
        if attributeName in values_of(node):
            raise popart_exception(f"Node already has attribute {attributeName}.")
        self._set(node, attributeName, attributeValue)

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Ids) -> bool:
        """Whether the operation that makes these tensors has an attribute."""
        return attributeName in values_of(self._node(nodeOutputNames))

    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: Ids) -> int:
        """An attribute that is a whole number."""
        return int(self._attribute(attributeName, nodeOutputNames, int))

    def getInt64VectorNodeAttribute(self, attributeName: str, nodeOutputNames: Ids) -> list[int]:
        """An attribute that is a list of whole numbers."""
        return list(self._attribute(attributeName, nodeOutputNames, list))

    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: Ids) -> float:
        """An attribute that is a number."""
        return float(self._attribute(attributeName, nodeOutputNames, float))

    def getFloatVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Ids) -> list[float]:
        """An attribute that is a list of numbers."""
        return list(self._attribute(attributeName, nodeOutputNames, list))

    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: Ids) -> str:
        """An attribute that is a text."""
        return str(self._attribute(attributeName, nodeOutputNames, str))

    def getStringVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Ids) -> list[str]:
        """An attribute that is a list of texts."""
        return list(self._attribute(attributeName, nodeOutputNames, list))

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Ids) -> None:
        """Take an attribute away from the operation that makes these tensors."""
        node = self._node(nodeOutputNames)
        self._attribute(attributeName, nodeOutputNames, object)
        others = [a for a in node.attribute if a.name != attributeName]
        del node.attribute[:]
        node.attribute.extend(others)

    def getAllNodeAttributeNames(self, nodeOutputNames: Ids) -> list[str]:
        """The names of all attributes of the operation that makes these tensors."""
        return list(values_of(self._node(nodeOutputNames)))

    # -- placement: for ids, or as a context -------------------------------------------------------

    def virtualGraph(self, nodeOutputNames: Ids | int, value: int | None = None) -> Any:
        """The chip on which operations run."""
        return self._placed(VIRTUAL_GRAPH, nodeOutputNames, value, int)

    def pipelineStage(self, nodeOutputNames: Ids | int, value: int | None = None) -> Any:
        """The stage of a pipeline that operations belong to."""
        return self._placed(PIPELINE_STAGE, nodeOutputNames, value, int)

    def executionPhase(self, nodeOutputNames: Ids | int = 0, value: int | None = None) -> Any:
        """The phase in which operations run."""
        return self._placed(EXECUTION_PHASE, nodeOutputNames, value, int)

    def recomputeOutput(
        self,
        nodeOutputNames: Ids | RecomputeType = RecomputeType.Undefined,
        value: RecomputeType | None = None,
    ) -> Any:
        """Whether results are computed again in the backward pass, or kept."""
        return self._placed(RECOMPUTE, nodeOutputNames, value, int)

    def recomputeOutputInBackwardPass(
        self, nodeOutputNames: Ids, value: RecomputeType = RecomputeType.Recompute
    ) -> None:
        """As `recomputeOutput`, for ids."""
        self._placed(RECOMPUTE, nodeOutputNames, value, int)

    def getRecomputeOutputInBackwardPass(self, nodeOutputNames: Ids) -> bool:
        """Whether results are computed again in the backward pass."""
        result = values_of(self._node(nodeOutputNames)).get(RECOMPUTE, RecomputeType.Undefined)
        return result == RecomputeType.Recompute

    def outputTensorLocation(
        self,
        nodeOutputNames: Ids | TensorLocation | None = None,
        value: TensorLocation | None = None,
    ) -> Any:
        """Where results are kept."""
        first = TensorLocation(TensorStorage.OnChip) if nodeOutputNames is None else nodeOutputNames
        return self._placed(LOCATION, first, value, TensorLocation.numbers)

    def schedulePriority(self, nodeOutputNames: Ids | float, value: float | None = None) -> Any:
        """How early operations run among those that could run."""
        return self._placed(PRIORITY, nodeOutputNames, value, float)

    def commGroup(self, type: int = 0, groupSize: int = 0) -> Any:
        """A context: the replicas among which collectives combine."""
        return self._context(COMM_GROUP, [int(type), int(groupSize)])

    def outlineAttributes(self, attributes: Mapping[str, str]) -> Any:
        """A context: operations with different attributes are not outlined together."""
        if not isinstance(attributes, Mapping):
            raise popart_exception(f"Expected names and texts, got {attributes!r}")
        before = self._in_force.get(OUTLINE, [])
        pairs = [str(text) for pair in attributes.items() for text in pair]
        return self._context(OUTLINE, [*before, *pairs])

    @contextlib.contextmanager
    def nameScope(self, name: str) -> Iterator[None]:
        """A context: ids begin with `name/`."""
        self._graph.ids.scopes.append(str(name))
        try:
            yield
        finally:
            self._graph.ids.scopes.pop()

    def getNameScope(self, name: str = "") -> str:
        """What an id of this name begins with, with the name."""
        return self._graph.ids.prefix() + name

    def hasVirtualGraph(self) -> bool:
        """Whether a chip is in force."""
        return VIRTUAL_GRAPH in self._in_force

    def hasPipelineStage(self) -> bool:
        """Whether a stage is in force."""
        return PIPELINE_STAGE in self._in_force

    def hasExecutionPhase(self) -> bool:
        """Whether a phase is in force."""
        return EXECUTION_PHASE in self._in_force

    def getVirtualGraph(self, nodeOutputNames: Ids | None = None) -> int:
        """The chip in force, or that of the operation that makes these tensors."""
        return self._number(VIRTUAL_GRAPH, nodeOutputNames)

    def getPipelineStage(self, nodeOutputNames: Ids | None = None) -> int:
        """The stage in force, or that of the operation that makes these tensors."""
        return self._number(PIPELINE_STAGE, nodeOutputNames)

    def getExecutionPhase(self, nodeOutputNames: Ids | None = None) -> int:
        """The phase in force, or that of the operation that makes these tensors."""
        return self._number(EXECUTION_PHASE, nodeOutputNames)

    # -- choices for one operation -----------------------------------------------------------------

    def excludePatterns(self, nodeOutputName: Ids, patternNames: list[str]) -> None:
        """Patterns that leave an operation alone."""
        self._set(self._node(nodeOutputName), EXCLUDED_PATTERNS, list(patternNames))

    def setPartialsType(self, nodeOutputName: Ids, partialsType: object) -> None:
        """The type in which a product or convolution of halves, and its gradients, are summed.

        Without it `partialsTypeMatMuls` of the session counts.
        """
        name = _PARTIALS_NAMES.get(str(partialsType).upper(), partialsType)
        self._choice(PARTIALS, name, PARTIALS_TYPES)
        self._set(self._node(nodeOutputName), PARTIALS, str(partialsType))

    def getPartialsType(self, nodeOutputName: Ids) -> str:
        """The type in which a product or convolution is summed; float unless said otherwise."""
        return str(values_of(self._node(nodeOutputName)).get(PARTIALS, "FLOAT"))

    def setAvailableMemoryProportion(
        self, nodeOutputName: Ids, availableMemoryProportion: float
    ) -> None:
        """The share of a tile's memory that the plans of an operation and its gradients may use."""
        share = float(availableMemoryProportion)
        if not 0 < share <= 1:
            raise popart_exception(
                f"availableMemoryProportion must be in (0,1], but was set to {share}"
            )
        for id in _ids(nodeOutputName):
            self._set(self._node(id), MEMORY, share)

    def setSerializeMatMul(
        self, nodeOutputName: Ids, mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        """Compute a product in `factor` parts, one after another, cut along a dimension."""
        self._choice("mode", mode, SERIALIZE_MODES)
        for id in _ids(nodeOutputName):
            node = self._node(id)
            if node.op_type != "MatMul":
                raise popart_exception(
                    f"setSerializeMatMul is for products: {id!r} is made by {node.op_type}"
                )
            if mode == "none":
                continue
            self._set(node, SERIALIZE_MODE, mode)
            self._set(node, SERIALIZE_FACTOR, int(factor))
            self._set(node, SERIALIZE_PRECISION, int(keep_precision))

    def setInplacePreferences(self, nodeOutputName: Ids, prefs: Mapping[str, float]) -> None:
        """Which forms of an operation that write over their input are preferred."""
        node = self._node(nodeOutputName)
        self._set(node, INPLACE_NAMES, list(prefs))
        self._set(node, INPLACE_PRIORITIES, [float(value) for value in prefs.values()])

    def setEnableConvDithering(self, nodeOutputName: Ids, value: int = 1) -> None:
        """Let a convolution begin at a tile that its dimensions choose, or (0) at the first.

        Its gradients begin there, too. Without it `convolutionOptions` of the session count.
        """
        self._set(self._node(nodeOutputName), DITHERING, int(value))

    # -- helpers -----------------------------------------------------------------------------------

    def _node(self, ids: Ids) -> onnx.NodeProto:
        for id in _ids(ids):
            node = self._graph.maker.get(id)
            if node is None:
                made = suggest(id, self._graph.maker)
                raise popart_exception(f"Could not find a node that makes {id!r}: {made}")
            return node
        raise popart_exception("An attribute belongs to a node: name a tensor that it makes")

    def _attribute(self, name: str, ids: Ids, kind: type) -> Any:
        node = self._node(ids)
        result = values_of(node)
        if name not in result:
            raise popart_exception(
                f"Node {node.op_type} does not have an attribute {name}: {suggest(name, result)}"
            )
        if not isinstance(result[name], kind):
            raise popart_exception(
                f"The attribute {name} of {node.op_type} is {result[name]!r},"
                f" not of type {kind.__name__}"
            )
        return result[name]

    def _set(self, node: onnx.NodeProto, name: str, value: object) -> None:
        others = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*others, helper.make_attribute(name, value)])

    def _placed(self, name: str, first: object, value: object, store: Callable[[Any], Any]) -> Any:
        is_for_ids = isinstance(first, str | list | tuple | set | frozenset)
        if not is_for_ids:
            return self._context(name, store(first))
        for id in _ids(first):
            self._set(self._node(id), name, store(0 if value is None else value))
        return None

    @contextlib.contextmanager
    def _context(self, name: str, value: object) -> Iterator[None]:
        before = dict(self._in_force)
        self._in_force[name] = value
        try:
            yield
        finally:
            self._in_force.clear()
            self._in_force.update(before)

    def _number(self, name: str, ids: Ids | None) -> int:
        if ids is not None:
            return int(self._attribute(name, ids, int))
        if name not in self._in_force:
            raise popart_exception(f"{name} not set in the builder")
        return int(self._in_force[name])

    def _choice(self, what: str, value: object, known: tuple[str, ...]) -> None:
        if value not in known:
            raise popart_exception(
                f"{what.strip('_')} is one of {', '.join(known)}, got {value!r}:"
                f" {suggest(str(value), known)}"
            )


def choices_of(attributes: Mapping[str, Any]) -> Choices:
    """How the operations of a node are planned, from its attributes."""
    share, partials, dithers = (attributes.get(name) for name in (MEMORY, PARTIALS, DITHERING))
    return Choices(
        None if share is None else float(share),
        None if partials is None else _PARTIALS_NAMES[str(partials).upper()],
        None if dithers is None else bool(dithers),
    )


def _ids(ids: Ids) -> list[str]:
    return [ids] if isinstance(ids, str) else list(ids)
