"""How a pipeline runs: stages on chips, a schedule, batches to fill it; and what cannot run."""

from dataclasses import dataclass, field

import keras

from tremula.frontends.keras.enums import PipelineSchedule
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.pipelines.stages import Path, StagesOfCalls, stages_of
from tremula.ir.placement import PlacementRules

_STRIDES = {PipelineSchedule.Grouped: 1, PipelineSchedule.Interleaved: 2}


@dataclass(frozen=True)
class PipelineOptions:
    """The arguments of `set_pipelining_options`."""

    device_mapping: tuple[int, ...] = ()  # chip of each stage; empty: stage n is on chip n
    schedule: PipelineSchedule = PipelineSchedule.Grouped
    accumulates_outfeed: bool = False
    recomputes: bool | None = None  # None: as IPUConfig.allow_recompute says


@dataclass(frozen=True)
class KerasPipeline:
    """The stages of one model, in order, and how they run."""

    model: keras.Model = field(repr=False)
    stages: dict[Path, int | None]  # of calls of layers
    n_stages: int
    options: PipelineOptions

    @property
    def chips(self) -> dict[int, int]:
        """By stage."""
        mapping = self.options.device_mapping or tuple(range(self.n_stages))
        return dict(enumerate(mapping))

    @property
    def n_chips(self) -> int:
        return max(self.chips.values(), default=0) + 1

    @property
    def is_overlapped(self) -> bool:
        """Whether stages work on different batches at the same time."""
        return self.options.schedule is not PipelineSchedule.Sequential and self.n_stages > 1

    def placement(self) -> PlacementRules:
        """How the stages of the pipeline take turns."""
        return PlacementRules(_STRIDES[self.options.schedule] if self.is_overlapped else 0)

    def _runs(self) -> dict[int, int]:
        """Stages by number; those that follow each other on one chip run as one."""
        chips, runs = self.chips, {0: 0}
        for stage in range(1, self.n_stages):
            runs[stage] = runs[stage - 1] + (chips[stage] != chips[stage - 1])
        return runs

    def recorder(self) -> StagesOfCalls:
        return StagesOfCalls(self.model, self.stages, self.chips, self._runs())

    def check_accumulation(self, n_accumulation: int) -> None:
        """Reject a number of batches that does not fill the pipeline evenly."""
        if not self.is_overlapped:
            return
        is_grouped = self.options.schedule is PipelineSchedule.Grouped
        unit = self.n_stages * (2 if is_grouped else 1)
        if n_accumulation % unit:
            raise keras_error(
                f"gradient_accumulation_steps_per_replica is {n_accumulation}; a pipeline of"
                f" {self.n_stages} stages with the schedule {self.options.schedule.name} takes a"
                f" multiple of {unit}.",
                hint=f"model.set_pipelining_options(gradient_accumulation_steps_per_replica={unit})",
            )

    def check_depth(self, n_iterations: int) -> None:
        """Reject an execution without gradients that ends before the last stage has begun."""
        if self.is_overlapped and n_iterations < self.n_stages:
            raise keras_error(
                f"an execution of {n_iterations} steps does not fill a pipeline of"
                f" {self.n_stages} stages.",
                hint=f"compile(steps_per_execution={self.n_stages}), or more",
            )


def pipeline_of(
    model: keras.Model, options: PipelineOptions | None, assigned: dict[Path, int] | None
) -> KerasPipeline | None:
    """The pipeline of a model; None if none of its layers has a stage."""
    result: dict[Path, int | None] = dict(stages_of(model))
    result.update(assigned or {})
    stages = sorted({stage for stage in result.values() if stage is not None})
    if options is None and not stages:
        return None
    if options is None:
        raise keras_error(
            f"layers of {model.name!r} have pipeline stages, and nothing says how many batches fill"
            " the pipeline.",
            hint="model.set_pipelining_options(gradient_accumulation_steps_per_replica=…)",
        )
    if stages and stages != list(range(len(stages))):
        raise keras_error(
            f"the pipeline stages of {model.name!r} are {stages}; they must be numbered from 0 on"
            " without gaps."
        )
    n_stages = len(stages) or len(options.device_mapping)
    if not n_stages:  # said by contexts in `call`, which runs when the step is recorded
        raise keras_error(
            f"no layer of {model.name!r} has a pipeline stage.",
            hint="build layers inside `with ipu.PipelineStage(…):`; where only `call` has contexts,"
            " give set_pipelining_options(device_mapping=[…]), a chip for each stage",
        )
    if options.device_mapping and len(options.device_mapping) != n_stages:
        raise keras_error(
            f"device_mapping has {len(options.device_mapping)} entries for {n_stages} stages."
        )
    return KerasPipeline(model, result, n_stages, options)


def n_replicas(pipeline: KerasPipeline | None, n_chips: int) -> int:
    """How many copies of a model the chips hold."""
    if pipeline is None:
        return n_chips
    if n_chips % pipeline.n_chips:
        raise keras_error(
            f"{pipeline.model.name!r} is a pipeline on {pipeline.n_chips} IPUs; {n_chips} are"
            " configured, which is not a multiple.",
            hint=f"cfg.auto_select_ipus = {pipeline.n_chips}",
        )
    return n_chips // pipeline.n_chips
