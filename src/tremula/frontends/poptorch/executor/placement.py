"""Where a captured step runs: from blocks to chips and stages, and the checks of both."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence

from torch import fx

from tremula.frontends.poptorch.enums import (
    ConnectionType,
    OutputMode,
    OverlapMode,
    SyncPattern,
)
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.strategies import (
    ExecutionStrategy,
    ParallelPhasedExecution,
    PhasedExecution,
    PipelinedExecution,
)
from tremula.ir.nodes import schema_name
from tremula.ir.origin import ORIGIN
from tremula.ir.placement import BlockPlacements, PlacementRules
from tremula.ir.step import BUFFER, INPUT, OUTPUT, CapturedStep

MAX_IPUS_OF_PROCESS = 64
TILES_OF_SMALL_MODEL = 4
_OVERLAP = "tremula::overlap"


def placement_rules(options: Options) -> PlacementRules:
    """How blocks on chips, in stages and phases take turns."""
    strategy = options.execution_strategy
    waits_for_all = options.sync_pattern == SyncPattern.Full
    if isinstance(strategy, PhasedExecution):
        waits_for_all = waits_for_all and not isinstance(strategy, ParallelPhasedExecution)
        return PlacementRules(
            phases=strategy.phases_of(()), waits_for_all=waits_for_all, covers_all=True
        )
    stride = _STRIDES.get(_pipeline_schedule(strategy) or "", 0)
    return PlacementRules(stride, waits_for_all=waits_for_all, covers_all=True)


_STRIDES = {"grouped": 1, "interleaved": 2}  # others compute one micro-batch at a time


def check_placed(step: CapturedStep, places: BlockPlacements, options: Options) -> None:
    """Raise if a step on these chips cannot run as the options say."""
    check_overlap(step, options)
    _check_buffers(step, options)
    last = _begin_of_last_stage(step, places.stage_of_block)
    check_pipeline_depth(options, places.n_stages, step.training, last)
    n_ipus_needed(places.chip_of_block, options.replication_factor, options)


def _pipeline_schedule(strategy: ExecutionStrategy) -> str | None:
    return strategy.schedule if isinstance(strategy, PipelinedExecution) else None


def _check_buffers(step: CapturedStep, options: Options) -> None:
    """Replicas would disagree about a buffer that each of them writes.

    Statistics of batch norms are those of each replica's batches; the first replica's are returned.
    """
    if options.replication_factor == 1 or not options.broadcast_buffers:
        return
    written = [(slot.name, step.results()[place]) for place, slot in step.results_of_kind(BUFFER)]
    norms = {_module_of(name) for name, node in written if _is_statistic(node)}
    written = [
        name
        for name, node in written
        if not _is_statistic(node)
        and not (_module_of(name) in norms and name.endswith("num_batches_tracked"))
    ]
    if written:
        raise createPoptorchError(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate"
            " buffers becoming out of sync between replicas, you can disable buffer broadcasting"
            " using poptorch.Options.broadcastBuffers(False)."
            f" The buffer {written[0]} is written."
        )


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]


def _is_statistic(node: fx.Node) -> bool:
    """Whether a batch norm computes it."""
    while node.all_input_nodes and schema_name(node) in ("aten::_to_copy", ""):
        node = node.all_input_nodes[0]
    return "batch_norm" in schema_name(node)


# -- pipelines and chips -------------------------------------------------------------------------


def _begin_of_last_stage(step: CapturedStep, stages: Sequence[int]) -> str:
    """Where the model begins its last stage, for messages."""
    blocks = {number for number, stage in enumerate(stages) if stage == max(stages)}
    for node in step.graph.nodes:
        origin = node.meta.get(ORIGIN)
        if origin is not None and origin.block in blocks and origin.source is not None:
            return f" The last stage begins at {origin.source}."
    return ""


def check_pipeline_depth(
    options: Options, n_stages: int, training: bool, last_stage: str = ""
) -> None:
    """Raise if a pipeline of `n_stages` forward stages can never be filled."""
    schedule = _pipeline_schedule(options.execution_strategy)
    if schedule in (None, "sequential") or n_stages <= 1:
        return
    if training and schedule == "interleaved":
        if options.Training.gradient_accumulation < n_stages:
            raise createPoptorchError(
                "poptorch.Options().Training.gradientAccumulation must be greater than or equal "
                f"to the number of pipeline stages ({n_stages}) when they are interleaved."
                f"{last_stage}"
            )
    elif training:
        n_backward = n_stages - 1
        n_all = n_stages + n_backward
        if options.Training.gradient_accumulation < n_all:
            raise createPoptorchError(
                "poptorch.Options().Training.gradientAccumulation must be greater than or equal "
                f"to the number of pipeline stages ({n_all}) when using "
                "poptorch.PipelinedExecution. Please note that a model with "
                f"{n_stages} pipeline stages in PopTorch will have an additional "
                f"{n_backward} stages when training.{last_stage}"
            )
    elif options.device_iterations < n_stages:
        raise createPoptorchError(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of "
            f"pipeline stages ({n_stages}) when using poptorch.PipelinedExecution.{last_stage}"
        )


def check_inference_accumulation(options: Options) -> None:
    """Raise if the options of an inference model accumulate gradients, which it does not have."""
    if options.Training.gradient_accumulation == 1:
        return
    text = (
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its "
        "default value (1) when running a poptorch.inferenceModel()."
    )
    if isinstance(options.execution_strategy, PipelinedExecution):
        text += (
            " Use poptorch.Options().deviceIterations to process a sufficient number of batches "
            "each run for pipelined execution instead."
        )
    raise createPoptorchError(text)


def n_ipus_needed(ids: Iterable[int], replicas: int, options: Options) -> int:
    """The number of chips a process must reserve for models on the chips `ids`, replicated."""
    ids = set(ids) or {0}
    n_used = max(len(ids), max(ids) + 1) * replicas
    is_offline = options.connection_type == ConnectionType.Never
    if is_offline or uses_ipu_model(options):
        return n_used  # no partition of a machine is reserved
    n_reserved = _size_of_partition(n_used)
    if n_reserved != n_used:
        _settle_rounding(n_used, n_reserved, options)
    if n_reserved > MAX_IPUS_OF_PROCESS:
        raise createPoptorchError(
            f"Too many IPUs requested ({n_reserved}). Experiments that need more than "
            f"{MAX_IPUS_OF_PROCESS} IPUs require distributed execution."
        )
    return n_reserved


def _size_of_partition(n_ipus: int) -> int:
    """Partitions have 1, 2, 4, … 64 chips, or several times 64."""
    if n_ipus < MAX_IPUS_OF_PROCESS:
        return 1 << (n_ipus - 1).bit_length()
    return -(-n_ipus // MAX_IPUS_OF_PROCESS) * MAX_IPUS_OF_PROCESS


def uses_ipu_model(options: Options) -> bool:
    """Whether the options or the environment choose the IPU model, with any number of chips."""
    if options.exists("use_model"):
        return options.use_model
    names = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
    return any(os.environ.get(name, "0") not in ("", "0") for name in names)


def machine_of(options: Options, chip: str) -> tuple[str, int]:
    """The chip to build for, and how many of its tiles; 0 means all.

    For the IPU model, POPTORCH_IPU_MODEL_VERSION is ipu1, ipu2 or ipu21, and
    POPTORCH_SMALL_IPU_MODEL has four tiles.
    """
    if not uses_ipu_model(options):
        return chip, 0
    is_small = os.environ.get("POPTORCH_SMALL_IPU_MODEL", "0") not in ("", "0")
    return os.environ.get("POPTORCH_IPU_MODEL_VERSION") or chip, TILES_OF_SMALL_MODEL * is_small


_REASON_TO_ROUND = (
    f", because PopTorch must reserve a power of 2 or maximum of {MAX_IPUS_OF_PROCESS} IPUs per"
    " process"
)


def _settle_rounding(n_used: int, n_reserved: int, options: Options) -> None:
    if options.auto_round_num_ipus:
        LOGGER.warning(
            "Reserving %d IPUs when the model specifies the use of only %d%s. %d will be reserved "
            "but not used.",
            n_reserved,
            n_used,
            _REASON_TO_ROUND,
            n_reserved - n_used,
        )
        return
    raise createPoptorchError(
        f"The model specifies the use of {n_used} IPUs, however PopTorch must reserve a minimum of "
        f"{n_reserved} in order to allow the model to run{_REASON_TO_ROUND}. Please reconfigure "
        "your model to use a different number of IPUs or set "
        "poptorch.Options().autoRoundNumIPUs(True)."
    )


# -- transfers that overlap with computing --------------------------------------------------------


def check_overlap(step: CapturedStep, options: Options) -> None:
    """Raise if a tensor marked for overlap cannot overlap, or if the options forbid it."""
    marks = [node for node in step.graph.nodes if schema_name(node) == _OVERLAP]
    marks = [node for node in marks if node.args[1] != OverlapMode.NoOverlap.value]
    if not marks:
        return
    _check_overlapped_inputs(step, [node for node in marks if not node.args[2]])
    _check_overlapped_outputs(step, [node for node in marks if node.args[2]])
    _check_overlap_options(options)


def _check_overlap_options(options: Options) -> None:
    if isinstance(options.execution_strategy, PipelinedExecution):
        raise createPoptorchError(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only"
            " one IPU, please switch to poptorch.ShardedExecution."
        )
    if not options.TensorLocations.exists("numIOTiles"):
        raise createPoptorchError(
            "No IO tiles allocated. You must allocate at least 32 IO tiles using"
            " poptorch.Options().TensorLocations.numIOTiles."
        )
    mode = OutputMode(options.output_mode)
    if mode not in (OutputMode.All, OutputMode.Sum):
        raise createPoptorchError(
            "Unsupported output mode for overlapped IO. Please switch output mode to"
            f" poptorch.OutputMode.All or poptorch.OutputMode.Sum; it is {mode.name}."
        )


def _check_overlapped_inputs(step: CapturedStep, marks: list[fx.Node]) -> None:
    places = {
        node: slot.index
        for slot, node in zip(step.inputs, step.placeholders(), strict=True)
        if slot.kind == INPUT
    }
    for node, index in places.items():
        if len(node.users) > 1 and any(user in marks for user in node.users):
            raise createPoptorchError(
                "poptorch.set_overlap_for_input must be the only op applied to an input. This is"
                f" not the case for input {index} to the model."
            )
    if any(mark.args[0] not in places for mark in marks):
        raise createPoptorchError(
            "poptorch.set_overlap_for_input applied on a node which is not a tensor input to"
            " the model."
        )


def _check_overlapped_outputs(step: CapturedStep, marks: list[fx.Node]) -> None:
    results = zip(step.outputs, step.results(), strict=True)
    returned = Counter(node for slot, node in results if slot.kind == OUTPUT)
    for mark in marks:
        same = [mark.args[0], *(other for other in marks if other.args[0] is mark.args[0])]
        n_returned = sum(returned[node] for node in same)
        if n_returned > 1:
            raise createPoptorchError(
                "poptorch.set_overlap_for_output cannot be used with a tensor that is returned"
                " twice. Please check all returned tensors including those nested in"
                " tuples/lists."
            )
        if not n_returned:
            raise createPoptorchError(
                "poptorch.set_overlap_for_output applied on a node which is not a tensor output to"
                " the model."
            )
