"""Where the values of a step are: on which chip, in which variables, in which part of a program."""

from collections.abc import Callable
from typing import Any

from torch import fx

from tremula.base.errors import InvalidOption
from tremula.base.source import at_source
from tremula.ir.lowering.bfloat16 import with_rounded, with_rounded_numbers
from tremula.ir.lowering.layouts import preferred_layout
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.pointwise.fused import Folded
from tremula.ir.lowering.program.node_queries import (
    base_of,
    check_result,
    chips_of_nodes,
    n_elements,
)
from tremula.ir.lowering.shards import add_shard
from tremula.ir.lowering.start_tiles import spread_by_name, spread_if_small
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.lowering.types import tile_type
from tremula.ir.nodes import is_view
from tremula.ir.op_table import lowering_of
from tremula.ir.origin import ORIGIN
from tremula.ir.passes.shard_update import N_SHARDS
from tremula.ir.step import BUFFER, INPUT, PARAMETER, STATE, CapturedStep, StepSlot
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import Target
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poputil

Read = Callable[[fx.Node], Any]  # the value of a node for the one that is lowered

# Elements of a tensor that goes to another chip whole: an exchange between chips takes hundreds of
# cycles to begin, and code on both.
_N_COPIED_WHOLE = 1024


class StepValues:
    """The value of every node that is lowered, and the chip that it is on."""

    def __init__(
        self,
        step: CapturedStep,
        graph: Graph,
        options: LoweringOptions,
        own_chip: Callable[[fx.Node], int | None],
    ):
        """`own_chip` gives the chip of a node that does not simply follow its operands."""
        self.step = step
        self.graph = graph
        self.options = options
        self.chips = _chip_graphs(graph, options.n_io_tiles)
        self.chip_of = chips_of_nodes(step, own_chip)
        self.folded = Folded(step.graph, self.chip_of)
        self.of_node: dict[fx.Node, object] = {}
        self.shared: list[dict] = [{} for _ in self.chips]
        self._copies: dict[tuple[fx.Node, int], Tensor] = {}
        inputs = zip(step.inputs, step.placeholders(), strict=True)
        self._parameters: dict[str | None, fx.Node] = {
            slot.name: node for slot, node in inputs if slot.kind == PARAMETER
        }
        self._no_program = Sequence()  # constants and layouts add nothing to a program

    def tensor(self, node: fx.Node) -> Tensor:
        """The value of a node that is one tensor."""
        value = self.of_node[node]
        assert isinstance(value, Tensor), f"{node.name} is a tensor"
        return value

    def tiles_on(self, node: fx.Node, chip: int, sequence: Sequence) -> Tiles:
        """What a lowering needs to build a node on a chip, into a sequence."""
        return Tiles(self.chips[chip], sequence, node, self.options, self.shared[chip], chip)

    def constant(self, node: fx.Node, chip: int) -> Tensor:
        """A constant of the step on a chip."""
        tiles = self.tiles_on(node, chip, self._no_program)
        return tiles.constant_of(self.step.constants[str(node.target)])

    def build(self, tiles: Tiles, read: Read) -> object:
        """The result of a node's lowering for the operands that `read` returns."""
        node = tiles.node
        origin = node.meta.get(ORIGIN)
        if self.folded.has_folded(node):
            with at_source(origin.source if origin is not None else None):
                return self.folded.lower(tiles, read)
        args, kwargs = with_rounded_numbers(node, fx.map_arg((node.args, node.kwargs), read))
        lowering = lowering_of(node)
        assert lowering is not None, "unsupported nodes were rejected before"
        with at_source(origin.source if origin is not None else None):
            value = lowering.build(tiles, *args, **kwargs)
            check_result(node, value)
            return with_rounded(tiles, value)

    def on_chip_of(self, tiles: Tiles, node: fx.Node, read: Read) -> object:
        """A value on the chip that reads it; copies between chips are explicit, and made once."""
        value = self.of_node[node]
        home = self.chip_of[node]
        if home == tiles.chip or not isinstance(value, Tensor):
            return value
        key = (node, tiles.chip)
        if key not in self._copies:
            self._copies[key] = self._copied(node, value, tiles, read)
        return self._copies[key]

    def _copied(self, node: fx.Node, value: Tensor, tiles: Tiles, read: Read) -> Tensor:
        """A value from another chip. A small tensor comes whole, once for all views of it."""
        if node.op == "get_attr":
            return self.constant(node, tiles.chip)
        base = base_of(node)
        if base is not node and n_elements(base) <= _N_COPIED_WHOLE and is_view(node.target):
            here = self.tiles_on(node, tiles.chip, tiles.sequence)
            return self.build(here, read)  # pyright: ignore[reportReturnType]
        name = f"{tiles.name}/copy"
        return poputil.copy_to_ipu(self.graph, value, tiles.sequence, tiles.chip, name)

    # -- variables of inputs, weights and states ---------------------------------------------------

    def variable(self, slot: StepSlot, node: fx.Node) -> Tensor:
        """A new variable, laid out as its first reader wants it, or spread over the chip."""
        chip, value = self.chip_of[node], node.meta["val"]
        graph, type = self.chips[chip], tile_type(value.dtype)
        if N_SHARDS in node.meta:
            return add_shard(graph, type, value.numel(), slot.name)
        if slot.kind in (PARAMETER, INPUT, BUFFER):
            nothing = self._no_program
            preferred = preferred_layout(node, lambda user: self.tiles_on(user, chip, nothing))
            if preferred is not None:
                return preferred
        if slot.kind == STATE and (like := self._weight_of(slot, node)) is not None:
            return poputil.clone_in_order(self.graph, like, slot.name, type=type)
        shape = [int(n) for n in value.shape]
        if slot.kind in (PARAMETER, BUFFER):
            return spread_by_name(graph, type, shape, slot.name)
        return spread_if_small(graph, type, shape, slot.name)

    def _weight_of(self, state: StepSlot, node: fx.Node) -> Tensor | None:
        """The weight that an optimiser's state is laid out like, whatever their types."""
        parameter = self._parameters.get(state.owner)
        if parameter is None:
            return None
        same = node.meta["val"].shape == parameter.meta["val"].shape
        same &= self.chip_of[node] == self.chip_of[parameter]  # scalars may be elsewhere
        result = self.of_node.get(parameter) if same else None
        return result if isinstance(result, Tensor) else None


# -- tiles of chips --------------------------------------------------------------------------------


def _chip_graphs(graph: Graph, n_io_tiles: int) -> list[Graph]:
    """The tiles of each chip that compute."""
    _check_io_tiles(n_io_tiles, graph.target)
    if graph.target.n_ipus == 1 and not n_io_tiles:
        return [graph]
    n_tiles = graph.target.tiles_per_ipu
    return [
        graph.create_virtual_graph(chip * n_tiles, (chip + 1) * n_tiles - n_io_tiles)
        for chip in range(graph.target.n_ipus)
    ]


def io_graph(graph: Graph, n_io_tiles: int, chip: int) -> Graph:
    """The tiles of a chip that are set aside for transfers: its last ones."""
    end = (chip + 1) * graph.target.tiles_per_ipu
    return graph.create_virtual_graph(end - n_io_tiles, end)


def half_of_io_graph(graph: Graph, n_io_tiles: int, chip: int, stores: bool) -> Graph:
    """Of the tiles for transfers, those that load from streaming memory or store to it."""
    end = (chip + 1) * graph.target.tiles_per_ipu
    begin = end - n_io_tiles
    middle = begin + (n_io_tiles + 1) // 2
    if middle == end:  # a single one does both
        return graph.create_virtual_graph(begin, end)
    return graph.create_virtual_graph(*((middle, end) if stores else (begin, middle)))


def _check_io_tiles(n_io_tiles: int, target: Target) -> None:
    if n_io_tiles >= target.tiles_per_ipu:
        raise InvalidOption(
            f"{n_io_tiles} tiles of each chip are set aside for I/O, but a chip has only"
            f" {target.tiles_per_ipu}.",
            hint="ask for fewer, or use a larger chip",
        )
