"""`poptorch.Options`: how a model runs."""

import copy
import os
import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple, Self

import torch

from tremula.frontends.popart.enums import RecomputationType
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.poptorch.enums import CommGroupType, ConnectionType, OutputMode, SyncPattern
from tremula.frontends.poptorch.logging import LOGGER, MAX_REPEATS
from tremula.frontends.poptorch.options import file as options_file
from tremula.frontends.poptorch.options.base import OptionsDict
from tremula.frontends.poptorch.options.groups import (
    _DistributedOptions,
    _JitOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from tremula.frontends.poptorch.options.popart import _PopartOptions
from tremula.frontends.poptorch.options.strategies import ExecutionStrategy, PipelinedExecution

_UNLIMITED = 2**64 - 1
_PROFILE_OPTIONS = {"autoReport.all": "true", "autoReport.outputExecutionProfile": "true"}


class AnchoredTensor(NamedTuple):
    """A tensor to be returned besides the outputs; no mode means that of the outputs."""

    long_name: str
    output_mode: OutputMode | None
    output_return_period: int


class Options(OptionsDict):
    """How a model runs. Every setter returns the options, so that calls can be chained.

    The first loader or model that uses an object freezes it; `clone` makes one that can be changed.
    """

    def __init__(self) -> None:
        self._Popart = _PopartOptions()
        self._jit = _JitOptions()
        self._precision = _PrecisionOptions(self._Popart)
        self._training = _TrainingOptions(self._Popart)
        self._distributed = _DistributedOptions()
        self._tensor_locations = _TensorLocationOptions()
        self._execution_strategy: ExecutionStrategy = PipelinedExecution()
        super().__init__(
            device_iterations=1,
            replication_factor=1,
            input_group_size=1,
            input_cgt=CommGroupType.Consecutive,
            output_mode=OutputMode.Default,
            output_return_period=1,
            anchored_tensors={},
            available_memory_proportion={},
            auto_round_num_ipus=False,
            broadcast_buffers=True,
            connection_type=ConnectionType.Always,
            sync_pattern=SyncPattern.Full,
            log_dir=".",
            max_repeat_logs=MAX_REPEATS,
            show_compilation_progress_bar=True,
            relax_optimizer_checks=False,
            module_namescope_enabled=True,
            source_location_excludes=[],  # PyTorch and Tremula themselves are always left out
        )
        options_file.apply_environment(self)

    @property
    def TensorLocations(self) -> _TensorLocationOptions:  # noqa: N802
        """Where tensors live."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:  # noqa: N802
        """Which of several processes this one is."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:  # noqa: N802
        """Options of tracing, which has no effect any more."""
        return self._jit

    @property
    def Training(self) -> _TrainingOptions:  # noqa: N802
        """How gradients are accumulated and reduced."""
        return self._training

    @property
    def Precision(self) -> _PrecisionOptions:  # noqa: N802
        """Types of partial sums, rounding, exceptions."""
        return self._precision

    @property
    def Popart(self) -> _PopartOptions:  # noqa: N802
        """Options of PopART by name; PopTorch calls this `_Popart`."""
        return self._Popart

    @property
    def execution_strategy(self) -> ExecutionStrategy:
        """How blocks become stages and phases, as `setExecutionStrategy` chose it."""
        return self._execution_strategy

    def session_options(self) -> SessionOptions:
        """These choices as PopART's session options."""
        session = self._Popart.session_options()
        self._training.apply_to(session)
        self._tensor_locations.apply_to(session)
        session.enableReplicatedGraphs = self.replication_factor > 1
        session.replicatedGraphCount = self.replication_factor
        n_processes = self._distributed.numProcesses
        session.enableDistributedReplicatedGraphs = n_processes > 1
        session.globalReplicationFactor = self.replication_factor * n_processes
        if "autoRecomputation" not in self._Popart.options:
            session.autoRecomputation = RecomputationType.Pipeline  # unless the script says no
        return session

    def deviceIterations(self, device_iterations: int) -> Self:  # noqa: N802
        """The number of iterations a call runs before it returns to the host."""
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor: int) -> Self:  # noqa: N802
        """The number of copies of the model in this process."""
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(  # noqa: N802
        self, input_group_size: int, input_group_type: CommGroupType
    ) -> Self:
        """Replicas of a group read the same input."""
        self.checkIsFrozen()
        if input_group_type == CommGroupType.All:
            raise ValueError("inputReplicaGrouping does not support poptorch.CommGroupType.All.")
        if input_group_type == CommGroupType.NoGrouping:
            input_group_size = 1
        replicas = self.replication_factor
        if input_group_size > replicas:
            raise ValueError(
                f"the input group size ({input_group_size}) is larger than the replication factor "
                f"({replicas}): call replicationFactor first."
            )
        if input_group_size < 1:
            raise ValueError(f"an input group has 1 replica or more, got {input_group_size}.")
        if replicas % input_group_size:
            raise ValueError(
                f"the input group size ({input_group_size}) must be a factor of the replication "
                f"factor ({replicas})."
            )
        return self.set(input_group_size=input_group_size, input_cgt=input_group_type)

    def outputMode(  # noqa: N802
        self, output_mode: OutputMode, output_return_period: int | None = None
    ) -> Self:
        """Which micro-batches a call returns; EveryN needs a period."""
        self.checkIsFrozen()
        mode, period = _checked_output_mode(output_mode, output_return_period)
        return self.set(output_mode=mode, output_return_period=period)

    def defaultOutputMode(self) -> bool:  # noqa: N802
        """Whether no output mode was chosen yet."""
        return self.output_mode == OutputMode.Default

    def anchorTensor(  # noqa: N802
        self,
        short_name: str,
        long_name: str,
        output_mode: OutputMode | None = None,
        output_return_period: int | None = 1,
    ) -> Self:
        """Return a tensor besides the outputs; read it with `getAnchoredTensor(short_name)`."""
        self.checkIsFrozen()
        period = 1
        if output_mode is not None:
            output_mode, period = _checked_output_mode(output_mode, output_return_period)
        anchored = AnchoredTensor(long_name, output_mode, period)
        return self.set(anchored_tensors={**self.anchored_tensors, short_name: anchored})

    def setExecutionStrategy(self, strategy: ExecutionStrategy) -> Self:  # noqa: N802
        """How blocks become stages and phases."""
        self.checkIsFrozen()
        assert isinstance(strategy, ExecutionStrategy), (
            f"expected a strategy such as poptorch.PipelinedExecution(), got {strategy!r}"
        )
        self._execution_strategy = strategy
        return self

    def setAvailableMemoryProportion(  # noqa: N802
        self, available_memory_proportion: Mapping[str, float]
    ) -> Self:
        """The share of a chip's memory that products may use for their temporaries."""
        self.checkIsFrozen()
        assert isinstance(available_memory_proportion, Mapping), (
            f"expected shares such as {{'IPU0': 0.4}}, got {available_memory_proportion!r}"
        )
        for name in available_memory_proportion:
            assert re.fullmatch(r"IPU\d+", str(name)), (
                f"keys of setAvailableMemoryProportion are IPU0, IPU1, …; got {name!r}"
            )
        proportions = {int(name[3:]): value for name, value in available_memory_proportion.items()}
        return self.set(available_memory_proportion=proportions)

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Self:  # noqa: N802
        """Reserve a power of two of chips, even if the model uses fewer."""
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Self:  # noqa: N802
        """Whether all replicas share their buffers."""
        return self.set(broadcast_buffers=broadcast_buffers)

    def randomSeed(self, random_seed: int) -> Self:  # noqa: N802
        """Seed the generators of the host (now) and of the device."""
        self.checkIsFrozen()
        assert isinstance(random_seed, int), f"a seed must be a whole number, got {random_seed!r}"
        torch.manual_seed(random_seed)
        return self.createOrSet(random_seed=random_seed)

    def connectionType(self, connection_type: ConnectionType) -> Self:  # noqa: N802
        """When the device is attached."""
        return self.set(connection_type=connection_type)

    def syncPattern(self, sync_pattern: SyncPattern) -> Self:  # noqa: N802
        """How chips synchronise."""
        return self.set(sync_pattern=sync_pattern)

    def useIpuModel(self, use_model: bool) -> Self:  # noqa: N802
        """Run the tile program itself; this wins over POPTORCH_IPU_MODEL."""
        return self.createOrSet(use_model=use_model)

    def useIpuId(self, ipu_id: int) -> Self:  # noqa: N802
        """Use this device."""
        assert isinstance(ipu_id, int), f"a device has a number, got {ipu_id!r}"
        return self.createOrSet(ipu_id=ipu_id)

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:  # noqa: N802
        """Compile without a device; the model cannot run."""
        self.connectionType(ConnectionType.Never)
        return self.createOrSet(ipu_version=ipu_version)

    def enableExecutableCaching(self, path: str | os.PathLike[str] | None) -> Self:  # noqa: N802
        """Cache compiled models in a folder; None turns the cache off."""
        self.checkIsFrozen()
        self._Popart.set("enableEngineCaching", path is not None)
        if path is not None:
            self._Popart.set("cachePath", os.fspath(path))
        else:
            self._Popart.options.pop("cachePath", None)
        return self

    def logDir(self, log_dir: str) -> Self:  # noqa: N802
        """The folder for logs."""
        return self.set(log_dir=log_dir)

    def maxRepeatLogs(self, n_lines: int | None) -> Self:  # noqa: N802
        """How often the same message is shown; None shows all."""
        return self.set(max_repeat_logs=_UNLIMITED if n_lines is None else n_lines)

    def modelName(self, name: str) -> Self:  # noqa: N802
        """The name of the model in reports."""
        return self.createOrSet(model_name=name)

    def enableSyntheticData(self, enabled: bool) -> Self:  # noqa: N802
        """Feed the model numbers made on the device: nothing is read from or sent to the host."""
        self.checkIsFrozen()
        self._Popart.set("syntheticDataMode", 2 if enabled else 0)
        return self

    def enableStableNorm(self, enabled: bool) -> Self:  # noqa: N802
        """Compute norms in two passes: slower, and more accurate."""
        self.checkIsFrozen()
        self._Popart.set("enableStableNorm", enabled)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Self:  # noqa: N802
        """Count the cycles of each call, for `cycleCount()`."""
        self.checkIsFrozen()
        self._Popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def enableProfiling(self, profile_dir: str | os.PathLike[str] | None = None) -> Self:  # noqa: N802
        """Write a report of each model into a folder."""
        self.checkIsFrozen()
        engine = {**self._Popart.options.get("engineOptions", {}), **_PROFILE_OPTIONS}
        if profile_dir is not None:
            engine["autoReport.directory"] = os.fspath(profile_dir)
        self._Popart.set("engineOptions", engine)
        return self

    def showCompilationProgressBar(self, show: bool = True) -> Self:  # noqa: N802
        """Show the progress of compilations."""
        return self.set(show_compilation_progress_bar=show)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Self:  # noqa: N802
        """Log unexpected attributes of optimisers for debugging only, not as warnings."""
        return self.set(relax_optimizer_checks=relax)

    def disableModuleNamescope(self) -> Self:  # noqa: N802
        """Leave the names of modules out of the names of operations."""
        return self.set(module_namescope_enabled=False)

    def updatableNamedBuffers(self, buffers: list[str]) -> Self:  # noqa: N802
        """Buffers that `copyNamedBuffersToDevice` sends."""
        self.checkIsFrozen()
        self._Popart.set("updatableNamedBuffers", list(buffers))
        return self

    def sourceLocationExcludes(self, excludes: list[str]) -> Self:  # noqa: N802
        """Ignore files with these parts in their path when looking for the line of an operation."""
        return self.set(source_location_excludes=list(excludes))

    def appendToLocationExcludes(self, *excludes: str) -> Self:  # noqa: N802
        """Ignore these as well."""
        return self.sourceLocationExcludes([*self.source_location_excludes, *excludes])

    def loadFromFile(self, filepath: str | os.PathLike[str]) -> Self:  # noqa: N802
        """Apply a file of setter calls, one a line, such as `deviceIterations(4)`."""
        self.checkIsFrozen()
        options_file.load_options_file(self, filepath)
        return self

    def from_json(self, string: str) -> Self:
        """Apply a JSON object of setters and their arguments."""
        self.checkIsFrozen()
        options_file.apply_json(self, string)
        return self

    def clone(self) -> Self:
        """A copy that can be changed."""
        return copy.deepcopy(self)

    def toDict(self) -> dict[str, Any]:  # noqa: N802
        """All options, with those of the groups and for the compiler, as plain values."""
        assert not self.defaultOutputMode(), (
            "no output mode was chosen: call outputMode(poptorch.OutputMode.…) first"
        )
        values = super().toDict()
        values.update(self._execution_strategy.backend_options())
        for part in (self._training, self._precision, self._distributed, self._tensor_locations):
            values.update(part.toDict())
        values.update(self._Popart.toDict())
        return {name: int(v) if isinstance(v, IntEnum) else v for name, v in values.items()}

    def _shown(self) -> list[tuple[str, object]]:
        groups: list[tuple[str, object]] = [
            ("execution_strategy", self._execution_strategy),
            ("Training", self._training),
            ("Precision", self._precision),
            ("Jit", self._jit),
            ("Distributed", self._distributed),
            ("TensorLocations", self._tensor_locations),
            ("_Popart", self._Popart),
        ]
        return [*super()._shown(), *groups]


def _checked_output_mode(mode: OutputMode, period: int | None) -> tuple[OutputMode, int]:
    assert isinstance(mode, OutputMode), f"expected a poptorch.OutputMode, got {mode!r}"
    if mode == OutputMode.EveryN:
        period = period or 0
        assert period > 0, (
            f"OutputMode.EveryN needs an output_return_period greater than 0, got {period}"
        )
        return mode, period
    if period not in (None, 1):
        LOGGER.info(
            "output_return_period=%s is ignored: only OutputMode.EveryN has a period", period
        )
    return mode, 1
