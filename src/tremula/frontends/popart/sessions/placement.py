"""The chip and pipeline stage of each node, from annotations or chosen by cost, and checks."""

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import onnx
from onnx import numpy_helper

from tremula.frontends.popart.builder.annotations import (
    EXECUTION_PHASE,
    PIPELINE_STAGE,
    VIRTUAL_GRAPH,
)
from tremula.frontends.popart.builder.graph import values_of
from tremula.frontends.popart.enums import VirtualGraphMode
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.options.options import SessionOptions
from tremula.ir.step import BlockPlace


def block_name(place: BlockPlace) -> str:
    """The name of the block that holds the operations of a place."""
    parts = (place.chip, place.stage, place.phase)
    return "/".join("" if n is None else str(n) for n in parts)


def place_nodes(
    graph: onnx.GraphProto, options: SessionOptions, n_chips: int, sizes: Mapping[str, int]
) -> dict[str, BlockPlace]:
    """The placement of each node, by its first output; empty if everything is on one chip.

    `sizes` are the bytes of tensors, for the automatic mode.
    """
    mode = VirtualGraphMode(options.virtualGraphMode)
    if options.enablePipelining and (mode is VirtualGraphMode.Off or n_chips < 2):
        raise popart_exception(
            f"Pipelining requires more than 1 IPU (currently {n_chips}) and a virtualGraphMode"
            f" other than Off (it is {mode.name})"
        )
    if mode is VirtualGraphMode.Off:
        return {}
    if mode is VirtualGraphMode.ExecutionPhases:
        return _in_phases(graph, options, n_chips)
    if mode is VirtualGraphMode.Auto:
        weights = {t.name: numpy_helper.to_array(t).nbytes for t in graph.initializer}
        chips = split_by_cost(graph, n_chips, {**sizes, **weights}, options)
    else:
        chips = _annotated_chips(graph, n_chips)
    stages = _stages(graph, chips) if options.enablePipelining else {}
    return {key: BlockPlace(chip, stages.get(key)) for key, chip in chips.items()}


def _in_phases(
    graph: onnx.GraphProto, options: SessionOptions, n_chips: int
) -> dict[str, BlockPlace]:
    """Phases as annotated, on the chips in turn; a node without one has that of its operands."""
    settings = options.executionPhaseSettings
    n_used = max(1, min(settings.stages, n_chips))
    result: dict[str, BlockPlace] = {}
    made_in: dict[str, int] = {}
    for node in graph.node:
        annotated = values_of(node).get(EXECUTION_PHASE)
        earliest = max((made_in[name] for name in node.input if name in made_in), default=0)
        phase = earliest if annotated is None else int(annotated)
        if not 0 <= phase < max(settings.phases, 1):
            raise popart_exception(
                f"{node.op_type} {_key(node)!r} is in execution phase {phase}, but"
                f" executionPhaseSettings.phases is {settings.phases}"
            )
        if phase < earliest:
            raise popart_exception(
                f"{node.op_type} {_key(node)!r} of execution phase {phase} reads what is made in"
                f" the later phase {earliest}"
            )
        result[_key(node)] = BlockPlace(phase % n_used, phase=phase)
        made_in |= dict.fromkeys(node.output, phase)
    return result


def _annotated_chips(graph: onnx.GraphProto, n_chips: int) -> dict[str, int]:
    """The chip of each node; one that is not annotated is on the chip of its first operand."""
    result: dict[str, int] = {}
    of_tensor: dict[str, int] = {}
    for node in graph.node:
        annotated = values_of(node).get(VIRTUAL_GRAPH)
        inherited = next((of_tensor[name] for name in node.input if name in of_tensor), 0)
        chip = inherited if annotated is None else int(annotated)
        if not 0 <= chip < n_chips:
            raise popart_exception(
                f"{node.op_type} {_key(node)!r} is on virtual graph {chip}, but the device has"
                f" {n_chips} IPUs: ask for more, such as numIPUs = {chip + 1}"
            )
        result[_key(node)] = chip
        of_tensor |= dict.fromkeys(node.output, chip)
    return result


def _stages(graph: onnx.GraphProto, chips: Mapping[str, int]) -> dict[str, int]:
    """The stage of each node: as annotated, or the number of its chip."""
    annotated = {_key(node): values_of(node).get(PIPELINE_STAGE) for node in graph.node}
    named = {key: stage for key, stage in annotated.items() if stage is not None}
    if not named:
        return dict(chips)
    missing = [key for key, stage in annotated.items() if stage is None]
    if missing:
        raise popart_exception(
            f"Some operations have a pipeline stage and {missing[0]!r} has none: annotate all of"
            " them, or none, so that stages are virtual graphs"
        )
    _check_stages(graph, named, chips)
    order = {stage: index for index, stage in enumerate(sorted(set(named.values())))}
    return {key: order[stage] for key, stage in named.items()}


def _check_stages(
    graph: onnx.GraphProto, stages: Mapping[str, int], chips: Mapping[str, int]
) -> None:
    chip_of: dict[int, int] = {}
    made_in: dict[str, int] = {}
    for node in graph.node:
        key = _key(node)
        stage = stages[key]
        if chip_of.setdefault(stage, chips[key]) != chips[key]:
            raise popart_exception(
                f"Ops of pipeline stage {stage} are on virtual graphs {chip_of[stage]} and"
                f" {chips[key]} ({key!r}): a stage is on one"
            )
        late = [name for name in node.input if made_in.get(name, -1) > stage]
        if late:
            raise popart_exception(
                f"{node.op_type} {key!r} of pipeline stage {stage} reads {late[0]!r}, which is made"
                f" in the later stage {made_in[late[0]]}"
            )
        made_in |= dict.fromkeys(node.output, stage)


def check_depth(
    places: Mapping[str, BlockPlace], options: SessionOptions, n_batches: int, *, is_training: bool
) -> None:
    """Raise if a pipeline can never be filled."""
    if not options.enablePipelining:
        return
    n_forward = len({place.stage for place in places.values()})
    n_stages = 2 * n_forward - 1 if is_training else n_forward
    if options.enableGradientAccumulation and is_training:
        depth, what = options.n_accumulation, "gradient accumulation factor"
    else:
        depth, what = n_batches, "batchesPerStep"
    if depth < n_stages:
        raise popart_exception(
            f"For pipelining, depth ({what}) must be at least the number of pipeline stages"
            f" ({n_stages}), it is {depth}"
        )


def _key(node: onnx.NodeProto) -> str:
    return node.output[0] if node.output else node.name


# -- VirtualGraphMode.Auto -------------------------------------------------------------------------


def split_by_cost(
    graph: onnx.GraphProto, n_chips: int, sizes: Mapping[str, int], options: SessionOptions
) -> dict[str, int]:
    """Chips of nodes such that each holds about the same bytes.

    Paths that begin at different inputs are separate runs until they meet. A run can be cut after
    a node where all its paths have converged. The cut nearest to a chip's share is taken, the
    later of two; the node before the cut stays on the earlier chip.
    """
    weights = {t.name for t in graph.initializer}
    runs = _runs(list(graph.node), weights)
    ordered = [node for run in runs for node in run]
    costs = [_cost(node, weights, sizes, options) for node in ordered]
    spent = list(itertools.accumulate(costs))
    meets = [_is_converged(run, place) for run in runs for place in range(len(run))]
    cuts = [i for i, is_cut in enumerate(meets) if is_cut and costs[i] and spent[i] < spent[-1]]
    ratios, chosen = _ratios(options, n_chips), [-1]
    for chip in range(1, n_chips):
        budget = spent[-1] * sum(ratios[:chip])
        left = [i for i in cuts if i > chosen[-1]]
        if not left:
            raise popart_exception(
                f"[AutoVirtualGraph] Couldn't find enough splits: {n_chips} IPUs need"
                f" {n_chips - 1}, found {chip - 1}. Use fewer IPUs, or annotate virtual graphs by"
                " hand"
            )
        chosen.append(min(left, key=lambda i: (abs(spent[i] - budget), -i)))
    return {_key(node): bisect_left(chosen, i) - 1 for i, node in enumerate(ordered)}


def _ratios(options: SessionOptions, n_chips: int) -> Sequence[float]:
    ratios = list(options.virtualGraphSplitRatios)
    if ratios and len(ratios) != n_chips:
        raise popart_exception(
            f"virtualGraphSplitRatios has {len(ratios)} entries for {n_chips} IPUs"
        )
    return [r / sum(ratios) for r in ratios] if ratios else [1 / n_chips] * n_chips


def _runs(nodes: list[onnx.NodeProto], weights: set[str]) -> list[list[onnx.NodeProto]]:
    """Nodes in order, grouped: a node joins its producer's run unless it has producers in two."""
    run_of: dict[str, int] = {}
    runs: list[list[onnx.NodeProto]] = []
    for node in nodes:
        made_by = {run_of[n] for n in node.input if n in run_of and n not in weights}
        if len(made_by) == 1:
            number = made_by.pop()
        else:
            number = len(runs)
            runs.append([])
        runs[number].append(node)
        run_of |= dict.fromkeys(node.output, number)
    return runs


def _is_converged(run: list[onnx.NodeProto], place: int) -> bool:
    """Whether the rest of a run reads nothing of what came before a node but its results."""
    before = {name for node in run[:place] for name in node.output}
    return not any(name in before for node in run[place + 1 :] for name in node.input)


def _cost(
    node: onnx.NodeProto, weights: set[str], sizes: Mapping[str, int], options: SessionOptions
) -> int:
    """Bytes of weights, twice where gradients accumulate, and of what the backward pass reads."""
    n_weight = sum(sizes.get(name, 0) for name in node.input if name in weights)
    n_other = sum(sizes.get(name, 0) for name in node.input if name not in weights)
    return n_weight * (2 if options.enableGradientAccumulation else 1) + n_other
