"""What the machine would take for a call of a PoplarExecutor: cycles, latencies, compile time."""

import datetime as dt

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.executor.base import ExecutorBase
from tremula.frontends.poptorch.executor.placement import uses_ipu_model
from tremula.ir.run import performance


class ExecutorTiming(ExecutorBase):
    """Questions about time; those about cycles compile the tile program."""

    def cycleCount(self) -> int:  # noqa: N802
        """Cycles the machine takes for one call, from the tile program."""
        if not self._options._Popart.options["instrumentWithHardwareCycleCounter"]:
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to "
                "enable."
            )
        if uses_ipu_model(self._options):
            raise createPoptorchError(
                "Cycle count logging is only supported on actual IPU hardware."
            )
        if self._compiled is None or self._n_runs == 0:
            raise createPoptorchError(
                "Please run the model at least once before obtaining cycle count."
            )
        return self._timing().total_cycles

    def _timing(self) -> performance.CallTiming:
        compiled = self._needs_compiled()
        return compiled.tiles.timing(has_run=compiled.run_on_tiles)

    def compilationTime(self) -> dt.timedelta:  # noqa: N802
        """How long the last compilation took, with that of the tile program if there was one."""
        if self._compiled is None:
            raise createPoptorchError(
                "Please compile the model before trying to obtain its compilation time."
            )
        if not self._options.show_compilation_progress_bar:
            raise createPoptorchError(
                "Please set showCompilationProgressBar option to True to obtain the compilation "
                "time."
            )
        return dt.timedelta(seconds=self._compiled.total_seconds)

    def getPerfCounters(self) -> performance.Counters:  # noqa: N802
        """When inputs and outputs of a call move, modelled: seconds per tensor and micro-batch."""
        is_synthetic = self._options._Popart.options.get("syntheticDataMode", 0) != 0
        if self._compiled is None or self._n_runs == 0 or is_synthetic:
            return performance.no_counters()
        compiled = self._compiled
        return performance.perf_counters(self._timing(), compiled.selection, compiled.n_outputs)

    def getLatency(self) -> performance.Latency:  # noqa: N802
        """From input to output of a micro-batch: least, most and average seconds."""
        return self._latency(performance.ROUND_TRIP)

    def getHostIpuLatency(self) -> performance.Latency:  # noqa: N802
        """The same for the way to the machine."""
        return self._latency(performance.HOST_TO_IPU)

    def getComputeLatency(self) -> performance.Latency:  # noqa: N802
        """The same for computing."""
        return self._latency(performance.COMPUTE)

    def getIpuHostLatency(self) -> performance.Latency:  # noqa: N802
        """The same for the way back."""
        return self._latency(performance.IPU_TO_HOST)

    def _latency(self, events: tuple) -> performance.Latency:
        counters = self.getPerfCounters()
        if self._compiled is None:
            return 0.0, 0.0, 0.0
        return performance.latency_between(counters, self._compiled.selection, *events)
