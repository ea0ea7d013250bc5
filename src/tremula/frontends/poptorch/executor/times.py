"""Times of a model: of its calls on the machine, from the tile program, and of its compilation."""

import datetime as dt
from dataclasses import dataclass

from tremula.frontends.poptorch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.poptorch.executor.compiled import CompiledModel
from tremula.frontends.poptorch.executor.placement import uses_ipu_model
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.run import performance


@dataclass(frozen=True)
class ModelTimes:
    """Answers questions about a model as it is now."""

    compiled: CompiledModel | None
    options: Options
    n_runs: int

    def cycle_count(self) -> int:
        """Cycles of one call."""
        return self._counted_call().total_cycles

    def cycle_interval(self) -> tuple[int, int]:
        """Cycles of one call on real hardware, nine times in ten."""
        return self._counted_call().cycle_interval

    def _counted_call(self) -> performance.CallTiming:
        if not self.options.Popart.get("instrumentWithHardwareCycleCounter"):
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to "
                "enable."
            )
        if uses_ipu_model(self.options):
            raise createPoptorchError(
                "Cycle count logging is only supported on actual IPU hardware."
            )
        if self.compiled is None or self.n_runs == 0:
            raise createPoptorchError(
                "Please run the model at least once before obtaining cycle count."
            )
        return _timing(self.compiled)

    def compilation_time(self) -> dt.timedelta:
        """Of the last compilation."""
        if self.compiled is None:
            raise createPoptorchError(
                "Please compile the model before trying to obtain its compilation time."
            )
        if not self.options.show_compilation_progress_bar:
            raise createPoptorchError(
                "Please set showCompilationProgressBar option to True to obtain the compilation "
                "time."
            )
        return dt.timedelta(seconds=self.compiled.program.compile_seconds)

    def perf_counters(self) -> performance.Counters:
        """Seconds at which each tensor of each micro-batch moves."""
        compiled = self.compiled
        if compiled is None or self.n_runs == 0:
            return performance.no_counters()
        if self.options.Popart.get("syntheticDataMode") != 0:  # nothing moves
            return performance.no_counters(len(compiled.first.tensors), compiled.n_outputs)
        batches = compiled.selection.micro_batches()
        return performance.perf_counters(_timing(compiled), batches, compiled.n_outputs)

    def latency(self, events: tuple) -> performance.Latency:
        """Between two events of a micro-batch."""
        if self.compiled is None:
            return 0.0, 0.0, 0.0
        batches = self.compiled.selection.micro_batches()
        return performance.latency_between(self.perf_counters(), batches, *events)


def _timing(compiled: CompiledModel) -> performance.CallTiming:
    with poptorch_errors():
        return compiled.program.timing()
