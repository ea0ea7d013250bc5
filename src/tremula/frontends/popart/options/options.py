"""SessionOptions: a row for each option, with its default and what it does here."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tremula.base.errors import suggest
from tremula.frontends.popart.enums import (
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.locations import TensorLocationSettings
from tremula.frontends.popart.options.groups import (
    AccumulateOuterFragmentSettings,
    AutodiffSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ReplicatedCollectivesSettings,
)


@dataclass(frozen=True)
class OptionRow:
    """An option: what it is unless it is set, and what it does."""

    default: Any
    effect: str = ""  # "": kept, and nothing more


_TILES = "the tile program: "
_RESULTS = "results: "
_SESSION = "the session: "
_ROWS: dict[str, OptionRow] = {
    # batches and replicas
    "enableGradientAccumulation": OptionRow(False, _RESULTS + "gradients of several micro-batches"),
    "accumulationFactor": OptionRow(1, _RESULTS + "how many micro-batches make an update"),
    "accumulationAndReplicationReductionType": OptionRow(
        ReductionType.Sum, _RESULTS + "gradients are summed or averaged"
    ),
    "meanAccumulationAndReplicationReductionStrategy": OptionRow(
        MeanReductionStrategy.Post, _RESULTS + "when a mean of gradients is divided"
    ),
    "enableReplicatedGraphs": OptionRow(False, _RESULTS + "several replicas"),
    "replicatedGraphCount": OptionRow(1, _RESULTS + "how many replicas"),
    "enableDistributedReplicatedGraphs": OptionRow(False, _SESSION + "replicas of all processes"),
    "globalReplicationFactor": OptionRow(1, _RESULTS + "what means are divided by"),
    "globalReplicaOffset": OptionRow(0),
    # chips
    "virtualGraphMode": OptionRow(VirtualGraphMode.Off, _TILES + "which chip computes what"),
    "virtualGraphSplitRatios": OptionRow([], _TILES + "shares of chips in VirtualGraphMode.Auto"),
    "enablePipelining": OptionRow(False, _TILES + "chips work on different micro-batches"),
    "executionPhaseSettings": OptionRow(
        ExecutionPhaseSettings(), _TILES + "parts that run one after another"
    ),
    "numIOTiles": OptionRow(0, _TILES + "tiles that only load and store"),
    # recomputation
    "autoRecomputation": OptionRow(
        RecomputationType.NoRecompute, _TILES + "what the backward pass computes again"
    ),
    "explicitRecomputation": OptionRow(False),
    "enableExplicitMainLoops": OptionRow(False),
    "useHostCopyOps": OptionRow(False),
    # memory
    "weightTensorLocationSettings": OptionRow(
        TensorLocationSettings(), _TILES + "weights outside the chips, or in shards"
    ),
    "optimizerStateTensorLocationSettings": OptionRow(
        TensorLocationSettings(), _TILES + "states of optimisers outside, or in shards"
    ),
    "accumulatorTensorLocationSettings": OptionRow(
        TensorLocationSettings(), _TILES + "sums of gradients outside the chips"
    ),
    "activationTensorLocationSettings": OptionRow(
        TensorLocationSettings(), _TILES + "what the backward pass needs, outside the chips"
    ),
    "tensorLocationSettingsOverride": OptionRow({}),
    # outlining
    "enableOutlining": OptionRow(True, _TILES + "repeated parts become one function"),
    "enableOutliningCopyCostPruning": OptionRow(True),
    "outlineThreshold": OptionRow(1.0, _TILES + "how much a function must save"),
    "outlineSequenceBreakCost": OptionRow(10000.0),
    "subgraphCopyingStrategy": OptionRow(SubgraphCopyingStrategy.OnEnterAndExit),
    # gradients and numbers
    "autodiffSettings": OptionRow(AutodiffSettings()),
    "partialsTypeMatMuls": OptionRow("", _TILES + "the type in which products are summed"),
    "enableStochasticRounding": OptionRow(False, _TILES + "halves round at random"),
    "enableFloatingPointChecks": OptionRow(False, _RESULTS + "stops at a NaN or an overflow"),
    "enableNonStableSoftmax": OptionRow(False),
    "automaticLossScalingSettings": OptionRow(
        AutomaticLossScalingSettings(), _RESULTS + "loss scaling follows gradients"
    ),
    "ensureFp32LossScaleTensor": OptionRow(False),
    "enableStableNorm": OptionRow(False),
    "groupNormStridedChannelGrouping": OptionRow(False),
    "enableSupportedDataTypeCasting": OptionRow(True),
    # the rest
    "constantWeights": OptionRow(True),
    "syntheticDataMode": OptionRow(
        SyntheticDataMode.Off, _RESULTS + "inputs are made on the device"
    ),
    "strictOpVersions": OptionRow(True),
    "batchSerializationSettings": OptionRow(BatchSerializationSettings()),
    "mergeVarUpdate": OptionRow(MergeVarUpdateType.Off),
    "mergeVarUpdateMemThreshold": OptionRow(1000000),
    "looseThresholdAtPeak": OptionRow(8000),
    "decomposeGradSum": OptionRow(False),
    "delayVarUpdates": OptionRow(True),
    "enableMergeExchange": OptionRow(True),
    "replicatedCollectivesSettings": OptionRow(ReplicatedCollectivesSettings()),
    "accumulateOuterFragmentSettings": OptionRow(AccumulateOuterFragmentSettings()),
    "aliasZeroCopy": OptionRow(False),
    "enableEngineCaching": OptionRow(False, _SESSION + "keeps tile programs in cachePath"),
    "enableVariablesCaching": OptionRow(True),
    "cachePath": OptionRow("session_cache", _SESSION + "where tile programs are kept"),
    "engineOptions": OptionRow({}, _TILES + "options of the engine"),
    "convolutionOptions": OptionRow({}),
    "matmulOptions": OptionRow({}),
    "lstmOptions": OptionRow({}),
    "reportOptions": OptionRow({}),
    "gclOptions": OptionRow({}),
    "experimentalSettings": OptionRow({}),
    "instrumentWithHardwareCycleCounter": OptionRow(False, _SESSION + "allows getCycleCount"),
    "hardwareInstrumentations": OptionRow({0}),
    "compileEngine": OptionRow(True, _SESSION + "off: prepareDevice compiles no tile program"),
    "compilationProgressTotal": OptionRow(100),
    "logDir": OptionRow(""),
    "dotChecks": OptionRow(set()),
    "dotOpNames": OptionRow(True),
    "firstDotOp": OptionRow(0),
    "finalDotOp": OptionRow(10000),
    "separateCallOpPdfs": OptionRow(True),
    "exportPoplarComputationGraph": OptionRow(False),
    "exportPoplarVertexGraph": OptionRow(False),
    "disableGradAccumulationTensorStreams": OptionRow(False),
    "disableOptimizerStateTensorStreams": OptionRow(
        False, _SESSION + "modelToHost writes no states"
    ),
    "rearrangeAnchorsOnHost": OptionRow(True),
    "rearrangeStreamsOnHost": OptionRow(False),
    "enablePrefetchDatastreams": OptionRow(True, _TILES + "the host is ahead of the chip"),
    "defaultPrefetchBufferingDepth": OptionRow(1, _TILES + "by how many transfers"),
    "defaultBufferingDepth": OptionRow(1, _TILES + "the newer name of the same"),
    "prefetchBufferingDepthMap": OptionRow({}),
    "bufferingDepthMap": OptionRow({}),
    "enableFullyConnectedPass": OptionRow(True),
    "enableSerializedMatmuls": OptionRow(True),
    "customCodelets": OptionRow([]),
    "customCodeletCompileFlags": OptionRow(""),
    "customTransformApplierSettings": OptionRow({}),
    "kahnTieBreaker": OptionRow("greedy"),
    "timeLimitScheduler": OptionRow(1e9),
    "swapLimitScheduler": OptionRow(1000000000),
    "transitiveClosureOptimizationThreshold": OptionRow(100000),
    "serializedPoprithmsShiftGraphsDir": OptionRow(""),
    "scheduleNonWeightUpdateGradientConsumersEarly": OptionRow(False),
    "groupHostSync": OptionRow(False),
    "opxAliasChecking": OptionRow(False),
    "opxModifyChecking": OptionRow(False),
    "enableInplaceAmbiguityChecking": OptionRow(False),
    "enableLoadAndOffloadRNGState": OptionRow(False, _SESSION + "getRNGState and setRNGState"),
    "createImplicitPipeliningFwdOnlyProgram": OptionRow(False),
    "useLoopCandidateCreator": OptionRow(False),
    "updatableNamedBuffers": OptionRow([]),
    "saveInitializersToFile": OptionRow(""),
}
_OLD_NAMES = {
    "serializedPoprithmsAnnealGraphsDir": "serializedPoprithmsShiftGraphsDir",
    "explicitPipelining": "enableExplicitMainLoops",
    **{f"_{name}": name for name in _ROWS if name.endswith("Options")},
}


class SessionOptions:
    """Choices of a session; setting one that does not exist is an error that names the nearest."""

    def __init__(self) -> None:
        for name, row in _ROWS.items():
            object.__setattr__(self, name, copy.deepcopy(row.default))

    def __setattr__(self, name: str, value: Any) -> None:
        name = _OLD_NAMES.get(name, name)
        if name not in _ROWS:
            raise AttributeError(f"SessionOptions has no option {name!r}: {suggest(name, _ROWS)}")
        object.__setattr__(self, name, self._checked(name, value))

    def __getattr__(self, name: str) -> Any:
        if name in _OLD_NAMES:
            return getattr(self, _OLD_NAMES[name])
        advice = "" if name.startswith("__") else f": {suggest(name, _ROWS)}"
        raise AttributeError(f"SessionOptions has no option {name!r}{advice}")

    @staticmethod
    def _checked(name: str, value: Any) -> Any:
        default = _ROWS[name].default
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
        """What an option changes here, or that it is only kept."""
        if name not in _ROWS:
            raise AttributeError(f"SessionOptions has no option {name!r}: {suggest(name, _ROWS)}")
        return _ROWS[name].effect or "kept; it changes neither results nor the tile program"

    @property
    def n_replicas(self) -> int:
        """The replicas of this process."""
        return int(self.replicatedGraphCount) if self.enableReplicatedGraphs else 1

    @property
    def n_accumulation(self) -> int:
        """The micro-batches of an update on one replica."""
        return int(self.accumulationFactor) if self.enableGradientAccumulation else 1

    def changed(self) -> dict[str, Any]:
        """The options that are not as they were made, by name."""
        return {
            name: getattr(self, name)
            for name, row in _ROWS.items()
            if getattr(self, name) != row.default
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"SessionOptions({shown})"


NAMES = tuple(_ROWS)


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
