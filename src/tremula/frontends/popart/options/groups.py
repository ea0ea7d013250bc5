"""Options that come in groups, such as `SessionOptions.batchSerializationSettings`."""

from dataclasses import dataclass

from tremula.frontends.popart.enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
)
from tremula.frontends.popart.options.fields import RESULTS, TILES, OptionGroup, option


@dataclass
class AutomaticLossScalingSettings(OptionGroup):
    """Loss scaling that follows the size of gradients."""

    enabled: bool = option(False, RESULTS + "loss scaling follows gradients")
    toTrackTensors: list[str] | None = None
    binEdgeLocation: float = option(0.125, RESULTS + "which gradients count as large")
    thresholdUpperCountProportion: float = option(
        1e-7, RESULTS + "how many large gradients reduce the scale"
    )
    updatePeriod: int = 1
    gradientTensorTrackingMethod: GradientTensorTrackingMethod = (
        GradientTensorTrackingMethod.AllNonViewChangingGradientTensors
    )


@dataclass
class BatchSerializationSettings(OptionGroup):
    """A batch that is computed in parts, to need less memory."""

    factor: int = option(0, drives="tiles.not_modelled")
    concatOnVirtualGraphChange: bool = True
    concatOnExecutionPhaseChange: bool = True
    concatOnPipelineStageChange: bool = True
    transformContext: BatchSerializationTransformContext = BatchSerializationTransformContext.Fwd
    method: BatchSerializationMethod = BatchSerializationMethod.UnrollDynamic
    batchSchedule: BatchSerializationBatchSchedule = BatchSerializationBatchSchedule.Isomorphic


@dataclass
class AutodiffSettings(OptionGroup):
    """Where backward graphs of sub-graphs get forward tensors from."""

    stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs


@dataclass
class ExecutionPhaseSettings(OptionGroup):
    """Phases of a model that does not fit on its chips at once."""

    phases: int = option(0, TILES + "how many phases")
    stages: int = option(2, TILES + "over how many chips phases alternate")
    weightIOSchedule: ExecutionPhaseIOSchedule = option(
        ExecutionPhaseIOSchedule.Preload, by_name=False
    )
    activationIOSchedule: ExecutionPhaseIOSchedule = option(
        ExecutionPhaseIOSchedule.Preload, by_name=False
    )
    optimizerStateIOSchedule: ExecutionPhaseIOSchedule = option(
        ExecutionPhaseIOSchedule.OnDemand, by_name=False
    )
    accumulatorIOSchedule: ExecutionPhaseIOSchedule = option(
        ExecutionPhaseIOSchedule.Preload, by_name=False
    )
    schedule: ExecutionPhaseSchedule = option(ExecutionPhaseSchedule.Interleaving, by_name=False)


@dataclass
class AccumulateOuterFragmentSettings(OptionGroup):
    """The order of what follows the accumulation of gradients."""

    schedule: AccumulateOuterFragmentSchedule = AccumulateOuterFragmentSchedule.Serial
    excludedVirtualGraphs: list[int] = option([])


@dataclass
class ReplicatedCollectivesSettings(OptionGroup):
    """Which collectives are joined."""

    prepareScheduleForMergingCollectives: bool = False
    mergeAllReduceCollectives: bool = option(
        False, TILES + "gradients are summed in one step", "tiles.lowering.merges_all_reduces"
    )
    mergeReduceScatterCollectives: bool = option(
        False,
        TILES + "gradients are scattered in one step",
        "tiles.lowering.merges_reduce_scatters",
    )
    mergeAllGatherCollectives: bool = False
