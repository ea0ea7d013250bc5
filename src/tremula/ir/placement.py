"""Where the blocks of a step run: a front end says it of each block, rules say what it means.

recorded block ─► BlockPlace (chip, stage, phase)  ─┐
settings       ─► PlacementRules (schedule, checks) ─┴─► place_blocks ─► BlockPlacements
"""

from dataclasses import dataclass, field, replace

from torch import fx

from tremula.ir.errors import UnsuitableModel
from tremula.ir.locations import Phases
from tremula.ir.nodes import schema_name
from tremula.ir.origin import FORWARD, ORIGIN
from tremula.ir.step import BlockPlace, CapturedStep


@dataclass(frozen=True)
class BlockPlacements:
    """The chip and stage of each block, in the order in which operations first use them."""

    chip_of_block: tuple[int, ...] = ()
    stage_of_block: tuple[int, ...] = ()  # of a pipeline: the forward stage; empty without one
    # Of a pipeline: how many iterations are between two micro-batches at the same stage. 1 is the
    # grouped schedule, 2 the interleaved one, in which chips alternate forward and backward.
    stride: int = 1
    phases: Phases = field(default_factory=Phases)
    waits_for_all: bool = True  # transfers stop every chip; otherwise those that take part

    @property
    def n_stages(self) -> int:
        """Forward stages of the pipeline; 1 without one."""
        return 1 + max(self.stage_of_block, default=0)


@dataclass(frozen=True)
class PlacementRules:
    """What the places of blocks mean for a program."""

    stride: int = 0  # of a pipeline, see BlockPlacements; 0: one micro-batch is computed at a time
    phases: Phases = field(default_factory=Phases)  # how values leave chips between phases
    waits_for_all: bool = True
    # Every operation after the first block is in a block; those before it are a stage on chip 0.
    covers_all: bool = False


class ReadsFromLater(UnsuitableModel):
    """A block reads what a block of a later stage or phase computes."""

    def __init__(self, step: CapturedStep, reader: fx.Node, source: fx.Node):
        self.reader, self.source_node = reader.meta[ORIGIN], source.meta[ORIGIN]
        block, maker = step.blocks[self.reader.block], step.blocks[self.source_node.block]
        self.place, self.source_place = block.place, maker.place
        is_phase = block.place is not None and block.place.phase is not None
        what = "phase" if is_phase else "stage"
        super().__init__(
            f"Block {block.user_id!r} of {what} {_order(block.place)} reads what block"
            f" {maker.user_id!r} of the later {what} {_order(maker.place)} computes:"
            f" {schema_name(reader)} at {self.reader.source}",
            hint=f"name the {what}s in the order in which forward runs their blocks",
        )


def place_blocks(step: CapturedStep, rules: PlacementRules) -> BlockPlacements:
    """The places of a step's blocks; raises if the step cannot run by the rules."""
    places = [block.place for block in step.blocks if block.place is not None]
    if not places or len(places) != len(step.blocks):
        return BlockPlacements(waits_for_all=rules.waits_for_all)
    if rules.covers_all:
        _check_covered(step)
    _check_order(step)
    chips = tuple(place.chip for place in places)
    phases = tuple(place.phase for place in places if place.phase is not None)
    if len(phases) == len(places):
        phases = replace(rules.phases, of_block=phases)
        return BlockPlacements(chips, phases=phases, waits_for_all=rules.waits_for_all)
    stages = [place.stage for place in places if place.stage is not None]
    if not rules.stride or len(stages) != len(places):
        return BlockPlacements(chips, waits_for_all=rules.waits_for_all)
    rank = {stage: number for number, stage in enumerate(sorted(set(stages)))}
    numbers = tuple(rank[stage] for stage in stages)
    result = BlockPlacements(chips, numbers, rules.stride, waits_for_all=rules.waits_for_all)
    return _with_first_stage(step, result) if rules.covers_all else result


def _check_covered(step: CapturedStep) -> None:
    is_in_blocks = False
    for node in step.graph.nodes:
        if not _is_forward_call(node):
            continue
        origin = node.meta[ORIGIN]
        if is_in_blocks and origin.block is None:
            raise UnsuitableModel(
                "No active Block, all the ops must belong to a Block:"
                f" {schema_name(node)} at {origin.source}",
                hint="make it part of a block that is open while it runs, or let each block last"
                " until the next one begins",
            )
        is_in_blocks = is_in_blocks or origin.block is not None


def _check_order(step: CapturedStep) -> None:
    """Stages and phases run in their order: none reads from a later one."""
    order = [_order(block.place) for block in step.blocks]
    for node in step.graph.nodes:
        block = _forward_block(node)
        own = None if block is None else order[block]
        for source in node.all_input_nodes if own is not None else ():
            maker = _forward_block(source)
            made_in = None if maker is None else order[maker]
            if own is not None and made_in is not None and made_in > own:
                raise ReadsFromLater(step, node, source)


def _order(place: BlockPlace | None) -> int | None:
    return None if place is None else place.order


def _is_forward_call(node: fx.Node) -> bool:
    origin = node.meta.get(ORIGIN)
    return node.op == "call_function" and origin is not None and origin.phase == FORWARD


def _forward_block(node: fx.Node) -> int | None:
    return node.meta[ORIGIN].block if _is_forward_call(node) else None


def _with_first_stage(step: CapturedStep, places: BlockPlacements) -> BlockPlacements:
    """What comes before the first block is a stage on chip 0, if that block is on another chip."""
    if places.chip_of_block[0] == 0:
        return places
    forward = [node.meta[ORIGIN] for node in step.graph.nodes if _is_forward_call(node)]
    unnamed = {origin for origin in forward if origin.block is None}
    if not unnamed:
        return places
    number = len(places.chip_of_block)
    for node in step.graph.nodes:
        origin = node.meta.get(ORIGIN)
        if origin is not None and origin.in_phase(FORWARD) in unnamed:
            node.meta[ORIGIN] = replace(origin, block=number)
    stages = (*(stage + 1 for stage in places.stage_of_block), 0)
    return replace(places, chip_of_block=(*places.chip_of_block, 0), stage_of_block=stages)
