"""SessionOptions: every option of a session, with its type, default and effect.

This class is the one table of PopART's options: PopART's scripts set its attributes, PopTorch's
scripts set the same options by name (`table.py` lists them), and `popart/step_settings.py`
translates an object of it into the settings of a compiled step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tremula.base.errors import suggest
from tremula.frontends.popart.enums import (
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    OptionEnum,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.locations import TensorLocation, TensorLocationSettings
from tremula.frontends.popart.options.fields import (
    RESULTS,
    SESSION,
    TILES,
    default_of,
    effect_of,
    option,
)
from tremula.frontends.popart.options.groups import (
    AccumulateOuterFragmentSettings,
    AutodiffSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ReplicatedCollectivesSettings,
)

_PREFETCH = "tiles.lowering.prefetch_depth"
_OUTLINE = "tiles.lowering.outline_threshold"


@dataclass(init=False, repr=False, eq=False)
class SessionOptions:
    """Choices of a session; setting one that does not exist is an error that names the nearest."""

    # batches and replicas
    enableGradientAccumulation: bool = option(
        False,
        RESULTS + "gradients of several micro-batches make an update",
        "repetition.n_accumulation repetition.gradient_scale repetition.has_running_mean",
    )
    accumulationFactor: int = option(
        1,
        RESULTS + "how many micro-batches make an update",
        "repetition.n_accumulation repetition.gradient_scale",
    )
    accumulationAndReplicationReductionType: ReductionType = option(
        ReductionType.Sum,
        RESULTS + "gradients are summed or averaged",
        "repetition.gradient_scale repetition.has_running_mean",
    )
    meanAccumulationAndReplicationReductionStrategy: MeanReductionStrategy = option(
        MeanReductionStrategy.Post,
        RESULTS + "when a mean of gradients is divided",
        "repetition.has_running_mean",
    )
    enableReplicatedGraphs: bool = option(
        False, RESULTS + "several replicas", "repetition.n_replicas repetition.gradient_scale"
    )
    replicatedGraphCount: int = option(
        1,
        RESULTS + "how many replicas",
        "repetition.n_replicas repetition.gradient_scale",
        by_name=False,
    )
    enableDistributedReplicatedGraphs: bool = option(
        False, SESSION + "replicas of all processes", "repetition.gradient_scale"
    )
    globalReplicationFactor: int = option(
        1, RESULTS + "what means are divided by", "repetition.gradient_scale"
    )
    globalReplicaOffset: int = option(0)
    # chips
    virtualGraphMode: VirtualGraphMode = option(
        VirtualGraphMode.Off, TILES + "which chip computes what"
    )
    virtualGraphSplitRatios: list[float] = option(
        [], TILES + "shares of chips in VirtualGraphMode.Auto", by_name=False
    )
    enablePipelining: bool = option(False, TILES + "chips work on different micro-batches")
    executionPhaseSettings: ExecutionPhaseSettings = option(
        ExecutionPhaseSettings(), TILES + "parts that run one after another"
    )
    numIOTiles: int = option(
        0,
        TILES + "tiles that only load and store",
        "tiles.lowering.n_io_tiles tiles.not_modelled",
    )
    # recomputation
    autoRecomputation: RecomputationType = option(
        RecomputationType.NoRecompute,
        TILES + "what the backward pass computes again",
        "tiles.recomputes_stages",
    )
    explicitRecomputation: bool = option(False)
    enableExplicitMainLoops: bool = option(False)
    useHostCopyOps: bool = option(False)
    # memory
    weightTensorLocationSettings: TensorLocationSettings = option(
        TensorLocationSettings(),
        TILES + "weights outside the chips, or in shards",
        "tiles.lowering.locations.weight tiles.not_modelled",
        by_name=False,
    )
    optimizerStateTensorLocationSettings: TensorLocationSettings = option(
        TensorLocationSettings(),
        TILES + "states of optimisers outside the chips, or in shards",
        "tiles.lowering.locations.state tiles.not_modelled",
        by_name=False,
    )
    accumulatorTensorLocationSettings: TensorLocationSettings = option(
        TensorLocationSettings(),
        TILES + "sums of gradients outside the chips",
        "tiles.lowering.locations.accumulator tiles.not_modelled",
        by_name=False,
    )
    activationTensorLocationSettings: TensorLocationSettings = option(
        TensorLocationSettings(),
        TILES + "what the backward pass needs, outside the chips",
        "tiles.lowering.locations.activation tiles.not_modelled",
        by_name=False,
    )
    tensorLocationSettingsOverride: dict[str, TensorLocation] = option({}, by_name=False)
    # outlining
    enableOutlining: bool = option(True, TILES + "repeated parts become one function", _OUTLINE)
    enableOutliningCopyCostPruning: bool = option(True)
    outlineThreshold: float = option(1.0, TILES + "how much a function must save", _OUTLINE)
    outlineSequenceBreakCost: float = option(10000.0)
    subgraphCopyingStrategy: SubgraphCopyingStrategy = option(
        SubgraphCopyingStrategy.OnEnterAndExit
    )
    # gradients and arithmetic
    autodiffSettings: AutodiffSettings = option(AutodiffSettings())
    partialsTypeMatMuls: str = option(
        "", TILES + "the type in which products are summed", "tiles.lowering.partials_type"
    )
    enableStochasticRounding: bool = option(
        False, TILES + "halves round at random", "tiles.lowering.rounds_stochastically"
    )
    enableFloatingPointChecks: bool = option(
        False,
        RESULTS + "stops at a NaN or an overflow",
        "checks_floats tiles.engine_options",
    )
    enableNonStableSoftmax: bool = option(False)
    throwIfLog2ScaleTensorNotInRange: bool = option(
        True, RESULTS + "a run stops at a scale of 8-bit floats that is out of range"
    )
    automaticLossScalingSettings: AutomaticLossScalingSettings = option(
        AutomaticLossScalingSettings(), RESULTS + "loss scaling follows gradients"
    )
    ensureFp32LossScaleTensor: bool = option(False)
    enableStableNorm: bool = option(False)
    groupNormStridedChannelGrouping: bool = option(
        False,
        RESULTS + "a group of group normalisation is every n-th channel",
        "strides_group_norms",
    )
    enableSupportedDataTypeCasting: bool = option(True)
    # updates and collectives
    constantWeights: bool = option(True)
    syntheticDataMode: SyntheticDataMode = option(
        SyntheticDataMode.Off,
        RESULTS + "inputs are made on the device",
        "tiles.lowering.has_synthetic_data",
    )
    strictOpVersions: bool = option(True)
    batchSerializationSettings: BatchSerializationSettings = option(BatchSerializationSettings())
    mergeVarUpdate: MergeVarUpdateType = option(MergeVarUpdateType.Off)
    mergeVarUpdateMemThreshold: int = option(1000000)
    looseThresholdAtPeak: int = option(8000)
    decomposeGradSum: bool = option(False)
    delayVarUpdates: bool = option(True)
    enableMergeExchange: bool = option(True)
    replicatedCollectivesSettings: ReplicatedCollectivesSettings = option(
        ReplicatedCollectivesSettings(), TILES + "which collectives are joined"
    )
    accumulateOuterFragmentSettings: AccumulateOuterFragmentSettings = option(
        AccumulateOuterFragmentSettings()
    )
    aliasZeroCopy: bool = option(False)
    # compiled programs
    enableEngineCaching: bool = option(
        False, SESSION + "saves tile programs in cachePath", "tiles.cache_folder"
    )
    enableVariablesCaching: bool = option(True)
    cachePath: str = option(
        "session_cache", SESSION + "where tile programs are saved", "tiles.cache_folder"
    )
    engineOptions: dict[str, str] = option(
        {}, TILES + "options of the engine", "tiles.engine_options"
    )
    convolutionOptions: dict[str, str] = option(
        {},
        TILES + "enableConvDithering: where they begin, unless a node says",
        "tiles.lowering.dithers_convolutions",
    )
    matmulOptions: dict[str, str] = option({})
    lstmOptions: dict[str, str] = option({})
    reportOptions: dict[str, str] = option({})
    gclOptions: dict[str, str] = option({})
    experimentalSettings: dict[str, Any] = option({}, by_name=False)
    compileEngine: bool = option(True, SESSION + "off: prepareDevice compiles no tile program")
    compilationProgressTotal: int = option(100)
    customCodelets: list[str] = option([])
    customCodeletCompileFlags: str = option("")
    customTransformApplierSettings: dict[str, Any] = option({}, by_name=False)
    # instruments and logs
    instrumentWithHardwareCycleCounter: bool = option(False, SESSION + "allows getCycleCount")
    hardwareInstrumentations: set[Instrumentation] = option({Instrumentation.Outer})
    logDir: str = option("")
    dotChecks: set[str] = option(set())
    dotOpNames: bool = option(True)
    firstDotOp: int = option(0)
    finalDotOp: int = option(10000)
    separateCallOpPdfs: bool = option(True)
    exportPoplarComputationGraph: bool = option(False)
    exportPoplarVertexGraph: bool = option(False)
    # streams
    disableGradAccumulationTensorStreams: bool = option(False)
    disableOptimizerStateTensorStreams: bool = option(
        False, SESSION + "modelToHost writes no states"
    )
    rearrangeAnchorsOnHost: bool = option(True)
    rearrangeStreamsOnHost: bool = option(False)
    enablePrefetchDatastreams: bool = option(
        True, TILES + "the host sends data before the chip needs it", _PREFETCH
    )
    defaultPrefetchBufferingDepth: int = option(
        1, TILES + "how many transfers the host is ahead", _PREFETCH
    )
    defaultBufferingDepth: int = option(
        1, TILES + "the newer name of defaultPrefetchBufferingDepth", _PREFETCH
    )
    prefetchBufferingDepthMap: dict[str, int] = option({}, by_name=False)
    bufferingDepthMap: dict[str, int] = option({}, by_name=False)
    # transforms and the scheduler
    enableFullyConnectedPass: bool = option(True)
    enableSerializedMatmuls: bool = option(True)
    kahnTieBreaker: str = option("greedy")
    timeLimitScheduler: float = option(1e9)
    swapLimitScheduler: int = option(1000000000)
    transitiveClosureOptimizationThreshold: int = option(100000)
    serializedPoprithmsShiftGraphsDir: str = option("")
    scheduleNonWeightUpdateGradientConsumersEarly: bool = option(False)
    groupHostSync: bool = option(False)
    opxAliasChecking: bool = option(False)
    opxModifyChecking: bool = option(False)
    enableInplaceAmbiguityChecking: bool = option(False)
    enableLoadAndOffloadRNGState: bool = option(False, SESSION + "getRNGState and setRNGState")
    createImplicitPipeliningFwdOnlyProgram: bool = option(False)
    useLoopCandidateCreator: bool = option(False)
    enableEfficientOverlapIOTopoCons: bool = option(False)
    enableConstantFoldingOfMultipleConsumers: bool = option(True)
    stashAllTensorsInferencePipeline: bool = option(False)
    updatableNamedBuffers: list[str] = option([])
    saveInitializersToFile: str = option("")

    def __init__(self) -> None:
        for name, item in _FIELDS.items():
            object.__setattr__(self, name, default_of(item))

    def __setattr__(self, name: str, value: object) -> None:
        name = _OLD_NAMES.get(name, name)
        _check_exists(name)
        object.__setattr__(self, name, self._checked(name, value))

    def __getattr__(self, name: str) -> Any:
        if name in _OLD_NAMES:
            return getattr(self, _OLD_NAMES[name])
        advice = "" if name.startswith("__") else f": {suggest(name, _FIELDS)}"
        raise AttributeError(f"SessionOptions has no option {name!r}{advice}")

    @staticmethod
    def _checked(name: str, value: object) -> Any:
        default = default_of(_FIELDS[name])
        if isinstance(default, OptionEnum):
            return _choice(type(default), name, value)
        if isinstance(default, dict) and not isinstance(value, Mapping):
            raise popart_exception(f"SessionOptions.{name} is a dict, got {value!r}")
        if isinstance(default, bool) and not isinstance(value, bool | int):
            raise popart_exception(f"SessionOptions.{name} is True or False, got {value!r}")
        return dict(value) if isinstance(value, Mapping) else value

    def getGlobalReplicationFactor(self) -> int:
        """The replicas of all processes together."""
        if self.enableDistributedReplicatedGraphs:
            return int(self.globalReplicationFactor)
        return self.n_replicas

    def enableExplicitIR(self, enable: bool) -> None:
        """Write loops, copies from the host and recomputation as operations of the graph."""
        self.useHostCopyOps = self.enableExplicitMainLoops = self.explicitRecomputation = enable

    def effect_of(self, name: str) -> str:
        """What an option changes here, or that it changes nothing."""
        _check_exists(name)
        effect = effect_of(_FIELDS[name])
        return effect or "none: it changes neither results nor the tile program"

    @property
    def n_replicas(self) -> int:
        """The replicas of this process."""
        return int(self.replicatedGraphCount) if self.enableReplicatedGraphs else 1

    @property
    def n_accumulation(self) -> int:
        """The micro-batches of an update on one replica."""
        return int(self.accumulationFactor) if self.enableGradientAccumulation else 1

    def changed(self) -> dict[str, Any]:
        """The options that do not have their default, by name."""
        return {
            name: getattr(self, name)
            for name, item in _FIELDS.items()
            if getattr(self, name) != default_of(item)
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"SessionOptions({shown})"


_FIELDS = {item.name: item for item in fields(SessionOptions)}
NAMES = tuple(_FIELDS)
_OLD_NAMES = {
    "serializedPoprithmsAnnealGraphsDir": "serializedPoprithmsShiftGraphsDir",
    "explicitPipelining": "enableExplicitMainLoops",
    "_tensorLocationSettingsOverride": "tensorLocationSettingsOverride",
    **{f"_{name}": name for name in NAMES if name.endswith("Options")},
}


def _check_exists(name: str) -> None:
    if name not in _FIELDS:
        raise AttributeError(f"SessionOptions has no option {name!r}: {suggest(name, NAMES)}")


def _choice(kind: type[OptionEnum], name: str, value: object) -> OptionEnum:
    """A member of an enumeration, which may be written as its number."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(map(str, kind))
        raise popart_exception(f"SessionOptions.{name} is one of {known}, got {value!r}") from None


def check(options: SessionOptions) -> None:
    """Raise for choices that contradict each other."""
    if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
        raise popart_exception(
            "enableGradientAccumulation is false, but accumulationFactor > 1"
            f" ({options.accumulationFactor}). Either enable gradient accumulation, or set the"
            " accumulation factor to 1"
        )
    for name in ("accumulationFactor", "replicatedGraphCount"):
        if int(getattr(options, name)) < 1:
            raise popart_exception(f"{name} must be at least 1, got {getattr(options, name)}")
