"""Helpers that add small programs: cycle counters, seeds, rounding and exceptions."""

from tremula.base.errors import ControlProgramError
from tremula.base.source import user_source
from tremula.base.types import UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import CycleStamp, GetHwSeeds, Sequence, SetMachineState, SyncType
from tremula.poplar.tensors.tensor import Tensor


def cycle_stamp(
    graph: Graph,
    sequence: Sequence,
    tile: int,
    sync_type: SyncType = SyncType.INTERNAL,
    name: str = "",
) -> Tensor:
    """Append a step that stores the modelled cycle counter; 2 x UNSIGNED_INT: low, high."""
    stamp = graph.add_variable(UNSIGNED_INT, [2], name or "cycleStamp", mapping=tile)
    sequence.add(CycleStamp(stamp, graph.to_top_level_tile(tile), sync_type))
    return stamp


def cycle_count(
    graph: Graph,
    sequence: Sequence,
    tile: int,
    sync_type: SyncType = SyncType.INTERNAL,
    name: str = "",
) -> Tensor:
    """Wrap a sequence so that it counts its own cycles; returns 2 x UNSIGNED_INT: low, high."""
    begin = graph.add_variable(UNSIGNED_INT, [2], (name or "cycleCount") + "/begin", mapping=tile)
    count = graph.add_variable(UNSIGNED_INT, [2], name or "cycleCount", mapping=tile)
    top_tile = graph.to_top_level_tile(tile)
    sequence.steps.insert(0, CycleStamp(begin, top_tile, sync_type))
    sequence.add(CycleStamp(count, top_tile, sync_type, begin))
    return count


def set_floating_point_behaviour(
    graph: Graph,  # noqa: ARG001 - part of Poplar's signature
    sequence: Sequence,
    *,
    inv: bool = True,
    div0: bool = True,
    oflo: bool = True,
    esr: bool = False,
    nanoo: bool = False,
) -> None:
    """Append a step that chooses which float results stop the program, and how halves round.

    inv, div0, oflo: stop on NaN, on infinity from a division, on overflow. esr: stochastic
    rounding. nanoo: half overflow gives NaN (else, unless it stops, the largest half). A program
    that never chooses rounds to nearest and overflows to infinity; 8-bit floats, which have none,
    then overflow to NaN.
    """
    flags = {"inv": inv, "div0": div0, "oflo": oflo, "esr": esr, "nanoo": nanoo}
    sequence.add(SetMachineState(flags))


def set_stochastic_rounding(graph: Graph, sequence: Sequence, enable: bool) -> None:  # noqa: ARG001
    """Append a step that turns stochastic rounding of halves on or off."""
    sequence.add(SetMachineState({"esr": enable}))


def get_hw_seeds(graph: Graph, sequence: Sequence, name: str = "hwSeeds") -> Tensor:
    """Append a step that reads the seeds of all workers: UNSIGNED_INT [tiles, workers, 4]."""
    target = graph.top.target
    seeds = graph.add_variable(UNSIGNED_INT, [target.n_tiles, target.chip.n_workers, 4], name)
    for tile in range(target.n_tiles):
        graph.top.set_tile_mapping(seeds[tile], tile)
    sequence.add(GetHwSeeds(seeds))
    return seeds


def set_hw_seeds(graph: Graph, seeds: Tensor, sequence: Sequence) -> None:
    """Append a step that gives every worker the seeds of a tensor made by get_hw_seeds."""
    target = graph.top.target
    wanted = (target.n_tiles, target.chip.n_workers, 4)
    if seeds.type is not UNSIGNED_INT or seeds.shape != wanted:
        raise ControlProgramError(
            f"the seeds of all workers are {UNSIGNED_INT} {list(wanted)}, got {seeds.type} "
            f"{list(seeds.shape)}.",
            source=user_source(),
            hint="give a tensor that get_hw_seeds made; poprand.set_seed takes a seed of two words",
        )
    sequence.add(SetMachineState({}, seeds))
