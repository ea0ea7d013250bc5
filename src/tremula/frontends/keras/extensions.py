"""Methods that models of a scope have besides Keras's: accumulation, callbacks, reports."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from tremula.base.errors import suggest
from tremula.frontends.keras.enums import (
    GradientAccumulationReductionMethod,
    PipelineSchedule,
    RecomputationMode,
    ReplicatedMetricReductionMethod,
)
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.options import REDUCTIONS, ModelOptions, ReportingProgram, options_of
from tremula.frontends.keras.pipelines.assignments import (
    Assignment,
    assigned_stages,
    assignments_of,
    summary,
)
from tremula.frontends.keras.pipelines.pipeline import PipelineOptions

if TYPE_CHECKING:
    from tremula.compiler.report.report import ProgramReport

_PIPELINE_OPTIONS = (
    "gradient_accumulation_steps_per_replica",
    "device_mapping",
    "accumulate_outfeed",
    "gradient_accumulation_reduction_method",
    "pipeline_schedule",
    "recomputation_mode",
)
# Known to scripts, about memory and time of a real machine; results do not depend on them.
_PIPELINE_DETAILS = (
    "forward_propagation_stages_poplar_options",
    "backward_propagation_stages_poplar_options",
    "weight_update_poplar_options",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "offload_weight_update_variables",
    "offload_weights",
    "replicated_optimizer_state_sharding",
    "replicated_weight_sharding",
    "gradient_accumulation_dtype",
    "continuous_weight_updates",
    "outfeed_loss",
    "use_v2_gradient_accumulation_optimizer",
)


def set_gradient_accumulation_options(
    self: keras.Model,
    gradient_accumulation_steps_per_replica: int,
    gradient_accumulation_reduction_method: GradientAccumulationReductionMethod | str = "sum",
    **_details: object,  # of memory, which a model of this machine does not have
) -> None:
    """Update weights once for this many batches, by the sum or mean of their gradients."""
    options, n = _options(self), gradient_accumulation_steps_per_replica
    if not isinstance(n, int) or n < 1:
        raise keras_error(
            f"gradient_accumulation_steps_per_replica must be a whole number of at least 1;"
            f" got {n!r}."
        )
    method = gradient_accumulation_reduction_method
    name = method.name if isinstance(method, GradientAccumulationReductionMethod) else str(method)
    if name.lower() not in REDUCTIONS:
        raise keras_error(
            f"there is no gradient_accumulation_reduction_method {name!r}.",
            hint=suggest(name.lower(), REDUCTIONS),
        )
    options.n_accumulation, options.reduction = n, name.lower()


def set_pipelining_options(
    self: keras.Model,
    gradient_accumulation_steps_per_replica: int | None = None,
    device_mapping: Sequence[int] | None = None,
    accumulate_outfeed: bool | None = None,
    gradient_accumulation_reduction_method: GradientAccumulationReductionMethod | str = "sum",
    pipeline_schedule: PipelineSchedule = PipelineSchedule.Grouped,
    recomputation_mode: RecomputationMode | None = None,
    **details: object,
) -> None:
    """How the stages of a model run: batches in flight, chips, schedule."""
    options = _options(self)
    unknown = sorted(set(details) - set(_PIPELINE_DETAILS))
    if unknown:
        raise keras_error(
            f"set_pipelining_options has no option {unknown[0]!r}.",
            hint=suggest(unknown[0], [*_PIPELINE_OPTIONS, *_PIPELINE_DETAILS]),
        )
    if not isinstance(pipeline_schedule, PipelineSchedule):
        raise keras_error(
            f"pipeline_schedule must be a PipelineSchedule; got {pipeline_schedule!r}.",
            hint="one of " + ", ".join(f"PipelineSchedule.{s.name}" for s in PipelineSchedule),
        )
    if gradient_accumulation_steps_per_replica is not None:
        set_gradient_accumulation_options(
            self, gradient_accumulation_steps_per_replica, gradient_accumulation_reduction_method
        )
    options.pipelining = PipelineOptions(
        tuple(device_mapping or ()),
        pipeline_schedule,
        bool(accumulate_outfeed),
        None if recomputation_mode is None else True,
    )


def get_pipeline_stage_assignment(self: keras.Model) -> list[Assignment]:
    """An assignment for every call of a layer, to be changed and set again."""
    return assignments_of(self, _options(self).assigned_stages)


def set_pipeline_stage_assignment(self: keras.Model, assignments: Sequence[Assignment]) -> None:
    """Give all layers their stages."""
    _options(self).assigned_stages = assigned_stages(self, assignments)


def reset_pipeline_stage_assignment(self: keras.Model) -> None:
    """Forget what was set; stages said by contexts count again."""
    _options(self).assigned_stages = {}


def print_pipeline_stage_assignment_summary(
    self: keras.Model,
    line_length: int | None = None,
    print_fn: Callable[[str], object] = print,
) -> None:
    """Print a table of layers and stages."""
    del line_length
    print_fn(summary(self, _options(self).assigned_stages))


def set_infeed_queue_options(self: keras.Model, **options: int) -> None:
    """How batches wait for the device: `prefetch_depth` of them."""
    _set_queue_options(self, options, "set_infeed_queue_options")


def set_outfeed_queue_options(self: keras.Model, **options: int) -> None:
    """How results wait for the host; their number changes nothing here."""
    depth = _options(self).prefetch_depth
    _set_queue_options(self, options, "set_outfeed_queue_options")
    _options(self).prefetch_depth = depth


def _set_queue_options(model: keras.Model, options: dict[str, int], method: str) -> None:
    known = {"set_infeed_queue_options": "prefetch_depth"}.get(method, "buffer_depth")
    for name, value in options.items():
        if name != known:
            raise keras_error(f"{method} has no option {name!r}.", hint=suggest(name, [known]))
        if not isinstance(value, int) or value < 1:
            raise keras_error(f"{name} must be a whole number of at least 1; got {value!r}.")
    _options(model).prefetch_depth = options.get("prefetch_depth")


def set_asynchronous_callbacks(self: keras.Model, asynchronous: bool = False) -> None:
    """Call callbacks of batches for every batch, also where several run in one execution."""
    _options(self).asynchronous_callbacks = bool(asynchronous)


def set_replication_options(
    self: keras.Model,
    replicated_metric_reduction_method: ReplicatedMetricReductionMethod | str = "NONE",
) -> None:
    """How metrics of replicas combine: NONE and MEAN are of all samples, LAST of one replica."""
    method = replicated_metric_reduction_method
    name = method.name if isinstance(method, ReplicatedMetricReductionMethod) else str(method)
    known = ReplicatedMetricReductionMethod.__members__
    if name.upper() not in known:
        raise keras_error(
            f"there is no replicated_metric_reduction_method {name!r}.",
            hint=suggest(name.upper(), known),
        )
    if name.upper() == ReplicatedMetricReductionMethod.SUM.name:
        raise keras_error(
            "metrics of replicas are not added up: Keras keeps means, whose sum is not one.",
            hint="use MEAN, which is over the samples of all replicas, or LAST",
        )
    _options(self).metric_reduction = name.upper()


def export_for_ipu_serving(
    self: keras.Model,
    export_dir: str | Path,
    batch_size: int | None = None,
    preprocessing_step: Callable[..., object] | None = None,
    postprocessing_step: Callable[..., object] | None = None,
    *,
    input_shapes: Sequence[tuple[int, ...]] | None = None,
    tiles: bool = True,
) -> Path:
    """Write a file that predicts batches of one size without Keras: `tremula.load_served` reads it.

    The functions before and after the model become part of it; `input_shapes` are those of the
    first one's arguments, without the batch, where they are not the model's. With `tiles` the file
    holds the program for tiles, too.
    """
    from tremula.frontends.keras.serving import export  # loads the compiler

    _options(self)
    if batch_size is None:
        values = [tensor.shape[0] for tensor in getattr(self, "inputs", None) or []]
        batch_size = values[0] if values else None
    if not isinstance(batch_size, int) or batch_size < 1:
        raise keras_error(
            f"export_for_ipu_serving needs a batch size; got {batch_size!r}.",
            hint="model.export_for_ipu_serving(folder, batch_size=8)",
        )
    return export(
        self,
        export_dir,
        batch_size,
        before=preprocessing_step,
        after=postprocessing_step,
        input_shapes=input_shapes,
        has_tiles=tiles,
    )


def ipu_report(self: keras.Model) -> "ProgramReport":
    """Cycles and memory, on tiles, of the step that ran last."""
    return _last_program(self, "ipu_report").report()


def save_report(self: keras.Model, folder: str | os.PathLike[str]) -> Path:
    """Write the report of the step that ran last for the analyser; the path of its file."""
    return _last_program(self, "save_report").save_report(folder)


def _last_program(model: keras.Model, method: str) -> ReportingProgram:
    last = _options(model).last
    if last is None:
        raise keras_error(
            f"{model.name} has not run yet.", hint=f"call fit, evaluate or predict before {method}"
        )
    return last


def _options(model: keras.Model) -> ModelOptions:
    options = options_of(model)
    if options is None:
        raise keras_error(
            f"{model.name} is a plain Keras model: it was built outside IPUStrategy.scope().",
            hint="build it inside `with ipu.ipu_strategy.IPUStrategy().scope():`",
        )
    return options


METHODS = (
    set_gradient_accumulation_options,
    set_pipelining_options,
    get_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
    reset_pipeline_stage_assignment,
    print_pipeline_stage_assignment_summary,
    set_infeed_queue_options,
    set_outfeed_queue_options,
    set_asynchronous_callbacks,
    set_replication_options,
    export_for_ipu_serving,
    ipu_report,
    save_report,
)
