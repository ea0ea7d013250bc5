"""Groups of options: training, precision, tracing, distribution, locations of tensors."""

import os
from typing import Any, Self

import torch

from tremula.frontends.popart import locations as popart
from tremula.frontends.popart.enums import ReplicatedTensorSharding, TensorStorage, TileSet
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.poptorch.enums import (
    HalfFloatCastingBehavior,
    MeanReductionStrategy,
    ReductionType,
)
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.base import OptionsDict
from tremula.frontends.poptorch.options.popart import _PopartOptions


class _JitOptions(OptionsDict):
    """Options of tracing, without effect: models are always recorded as they run."""

    def traceModel(self, trace_model: bool) -> Self:  # noqa: N802
        """Deprecated: only False is possible."""
        if trace_model:
            raise ValueError(
                "Jit.traceModel(True) is no longer supported: forward is recorded as it runs. "
                "Leave the call out."
            )
        LOGGER.warning("Jit.traceModel(False) is the only choice: leave the call out.")
        return self


class _PrecisionOptions(OptionsDict):
    """Types of partial sums, rounding, and what happens at NaN and infinity."""

    def __init__(self, popart_options: _PopartOptions):
        self._popart_options = popart_options
        super().__init__(half_float_casting=HalfFloatCastingBehavior.Default)

    def enableFloatingPointExceptions(self, enabled: bool) -> Self:  # noqa: N802
        """Stop at an invalid operation, a division by zero or an overflow."""
        self.checkIsFrozen()
        self._popart_options.set("enableFloatingPointChecks", enabled)
        return self

    def enableStochasticRounding(self, enabled: bool) -> Self:  # noqa: N802
        """Round halves up or down at random, in proportion to the distance.

        On tiles all operations do. On a GPU the update does, when it stores weights and states.
        """
        self.checkIsFrozen()
        self._popart_options.set("enableStochasticRounding", enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> Self:  # noqa: N802
        """The type in which products of matrices and convolutions are summed."""
        self.checkIsFrozen()
        if dtype not in (torch.float16, torch.float32):
            raise ValueError(f"setPartialsType needs torch.half or torch.float, got {dtype}.")
        name = "half" if dtype is torch.float16 else "float"
        self._popart_options.set("partialsTypeMatMuls", name)
        convolutions = dict(self._popart_options.options.get("convolutionOptions", {}))
        self._popart_options.set("convolutionOptions", {**convolutions, "partialsType": name})
        return self

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> Self:  # noqa: N802
        """Deprecated: the types of mixed operations are PyTorch's."""
        self.checkIsFrozen()
        LOGGER.warning(
            "Precision.halfFloatCasting(%s) has no effect: mixed types follow PyTorch.",
            HalfFloatCastingBehavior(half_float_casting).name,
        )
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> Self:  # noqa: N802
        """Deprecated: running statistics keep the type of their buffers."""
        self.checkIsFrozen()
        LOGGER.warning(
            "Precision.runningStatisticsAlwaysFloat(%s) has no effect: running statistics keep "
            "the type of their buffers.",
            value,
        )
        return self


_STRATEGY = "meanAccumulationAndReplicationReductionStrategy"


class _TrainingOptions(OptionsDict):
    """How gradients are accumulated and reduced."""

    def __init__(self, popart_options: _PopartOptions):
        self._popart_options = popart_options
        self._strategy_of_script = MeanReductionStrategy.Post
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post,
        )

    def set(self, **values) -> Self:
        """Set options that exist, to values of the type they have."""
        super().set(**values)
        if _STRATEGY in values:
            self._strategy_of_script = self.meanAccumulationAndReplicationReductionStrategy
        return self

    def follow_accumulators(self, *, are_half: bool) -> None:
        """Use a running mean for accumulators in half, whose sum may overflow before it is divided.

        As in PopTorch, it replaces what the script chose, which other accumulators use.
        """
        running = MeanReductionStrategy.Running
        self._values[_STRATEGY] = running if are_half else self._strategy_of_script

    def apply_to(self, session: SessionOptions) -> None:
        """Write these choices into PopART's session options."""
        session.enableGradientAccumulation = self.gradient_accumulation > 1
        session.accumulationFactor = self.gradient_accumulation
        session.accumulationAndReplicationReductionType = (
            self.accumulation_and_replication_reduction_type
        )
        session.meanAccumulationAndReplicationReductionStrategy = (
            self.meanAccumulationAndReplicationReductionStrategy
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> Self:  # noqa: N802
        """The number of micro-batches whose gradients make one update."""
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> Self:  # noqa: N802
        """Whether gradients of micro-batches and replicas are summed or averaged."""
        self.checkIsFrozen()
        # By identity: 0 and 1 equal members, but are not a ReductionType.
        if not (reduction_type is ReductionType.Sum or reduction_type is ReductionType.Mean):
            raise ValueError(
                "accumulationAndReplicationReductionType must be poptorch.ReductionType.Sum or "
                f"poptorch.ReductionType.Mean, got {reduction_type!r}."
            )
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(  # noqa: N802
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> Self:
        """When a mean is divided: as it runs, or at its end."""
        self.checkIsFrozen()
        if not isinstance(mean_reduction_strategy, MeanReductionStrategy):
            raise ValueError(  # noqa: TRY004 (PopTorch's own class)
                "setMeanAccumulationAndReplicationReductionStrategy needs a "
                f"poptorch.MeanReductionStrategy, got {mean_reduction_strategy!r}."
            )
        return self.createOrSet(
            meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy
        )

    def setAutomaticLossScaling(self, enabled: bool) -> Self:  # noqa: N802
        """Let the loss scale follow the size of half gradients."""
        self.checkIsFrozen()
        self._popart_options.set("automaticLossScalingSettings.enabled", enabled)
        return self

    def setConvolutionDithering(self, enabled: bool) -> Self:  # noqa: N802
        """Start convolutions on different tiles, to spread their memory."""
        self.checkIsFrozen()
        convolutions = dict(self._popart_options.options.get("convolutionOptions", {}))
        dithering = {"enableConvDithering": "true" if enabled else "false"}
        self._popart_options.set("convolutionOptions", {**convolutions, **dithering})
        return self


class _DistributedOptions(OptionsDict):
    """Which of several processes this one is."""

    def __init__(self) -> None:
        self._n_processes_variable = "OMPI_COMM_WORLD_SIZE"
        self._process_id_variable = "OMPI_COMM_WORLD_RANK"
        super().__init__(num_distributed_processes=1, distributed_process_id=0)
        self._read_environment()

    def disable(self) -> Self:
        """Ignore the environment: there is one process."""
        return self.set(num_distributed_processes=1, distributed_process_id=0)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> Self:  # noqa: N802
        """Read the number of processes and that of this one from these variables."""
        self.checkIsFrozen()
        self._n_processes_variable = var_num_processes
        self._process_id_variable = var_process_id
        self._read_environment()
        return self

    def configureProcessId(self, process_id: int, num_processes: int) -> Self:  # noqa: N802
        """Say which process this is, and of how many."""
        return self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    @property
    def processId(self) -> int:  # noqa: N802
        """The number of this process."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:  # noqa: N802
        """The number of processes."""
        return self.num_distributed_processes

    def _read_environment(self) -> None:
        n_processes = int(os.environ.get(self._n_processes_variable, "1"))
        process_id = int(os.environ.get(self._process_id_variable, "0"))
        self.configureProcessId(process_id, n_processes)


class TensorLocationSettings(OptionsDict):
    """Where the tensors of one kind live and when they leave the chip."""

    def useOnChipStorage(self, use: bool | None) -> Self:  # noqa: N802
        """Keep the tensors on the chip (True), off it (False), or in the usual place (None)."""
        if use is None:
            self.deleteIfExists("onChip")
            return self
        return self.createOrSet(onChip=int(use))

    def minElementsForOffChip(self, min_elements: int) -> Self:  # noqa: N802
        """Tensors with fewer elements stay on the chip."""
        assert min_elements >= 0, f"minElementsForOffChip needs 0 or more, got {min_elements}"
        return self.createOrSet(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> Self:  # noqa: N802
        """Tensors with fewer elements are not sharded over replicas."""
        assert min_elements >= 0, (
            f"minElementsForReplicatedTensorSharding needs 0 or more, got {min_elements}"
        )
        return self.createOrSet(minElementsForReplicatedTensorSharding=min_elements)

    def useReplicatedTensorSharding(self, use: bool) -> Self:  # noqa: N802
        """Whether each replica stores only its shard of a tensor."""
        return self.createOrSet(useReplicatedTensorSharding=int(use))

    def useIOTilesToLoad(self, use: bool) -> Self:  # noqa: N802
        """Whether tiles for I/O load the tensor, while others compute."""
        return self.createOrSet(useIOTilesToLoad=int(use))

    def useIOTilesToStore(self, use: bool) -> Self:  # noqa: N802
        """Whether tiles for I/O store the tensor, while others compute."""
        return self.createOrSet(useIOTilesToStore=int(use))


class _TensorLocationOptions(OptionsDict):
    """Where activations, weights, optimiser states and accumulators live."""

    def __init__(self) -> None:
        super().__init__(
            location_activation={},
            location_weight={},
            location_optimizer={},
            location_accumulator={},
        )

    def numIOTiles(self, num_tiles: int) -> Self:  # noqa: N802
        """Set this many tiles of each chip aside for I/O."""
        assert num_tiles in range(32, 193, 2), (
            f"numIOTiles must be an even number between 32 and 192. Got {num_tiles}."
        )
        return self.createOrSet(numIOTiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> Self:  # noqa: N802
        """Where activations live."""
        return self._set_location("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> Self:  # noqa: N802
        """Where weights live."""
        return self._set_location("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> Self:  # noqa: N802
        """Where the states of the optimiser live."""
        return self._set_location("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> Self:  # noqa: N802
        """Where accumulated gradients live."""
        return self._set_location("location_accumulator", location)

    def apply_to(self, session: SessionOptions) -> None:
        """Write these choices into PopART's session options; others have PopART's defaults."""
        session.weightTensorLocationSettings = _popart_settings(self.location_weight)
        session.optimizerStateTensorLocationSettings = _popart_settings(self.location_optimizer)
        session.accumulatorTensorLocationSettings = _popart_settings(self.location_accumulator)
        session.activationTensorLocationSettings = _popart_settings(self.location_activation)
        if self.exists("numIOTiles"):
            session.numIOTiles = self("numIOTiles")

    def _set_location(self, name: str, location: TensorLocationSettings) -> Self:
        assert isinstance(location, TensorLocationSettings), (
            f"a location must be a poptorch.TensorLocationSettings, got {type(location)}"
        )
        values: dict[str, Any] = location.toDict()
        return self.set(**{name: values})


def _popart_settings(values: dict[str, int]) -> popart.TensorLocationSettings:
    """PopART's form of a location; what was not set has PopART's default."""
    sizes = {name: values[name] for name in _MIN_ELEMENTS if name in values}
    location = popart.TensorLocation(
        TensorStorage.OnChip if values.get("onChip", 1) else TensorStorage.OffChip,
        TileSet(values.get("useIOTilesToLoad", 0)),
        TileSet(values.get("useIOTilesToStore", 0)),
        ReplicatedTensorSharding(values.get("useReplicatedTensorSharding", 0)),
    )
    return popart.TensorLocationSettings(location, **sizes)


_MIN_ELEMENTS = ("minElementsForOffChip", "minElementsForReplicatedTensorSharding")
