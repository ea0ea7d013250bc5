"""An execution: the batches of `steps_per_execution` steps, as one call of a compiled program."""

import random
from collections.abc import Sequence

import keras
import torch
from keras.src.trainers.data_adapters.data_adapter_utils import (
    pack_x_y_sample_weight,
    unpack_x_y_sample_weight,
)
from torch import Tensor

from tremula.frontends.keras.backend import tensor_of
from tremula.frontends.keras.config import config_in_force
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.machine import checks_floats, tile_settings
from tremula.frontends.keras.options import LAST, MEAN, PREDICT, RUNNING_MEAN, TRAIN, ModelOptions
from tremula.frontends.keras.pipelines.pipeline import KerasPipeline
from tremula.frontends.keras.program import KerasProgram, compile_keras
from tremula.frontends.keras.step import StepOfModel
from tremula.frontends.keras.tracing import ModelVariable
from tremula.frontends.poptorch import collectives
from tremula.ir.placement import PlacementRules
from tremula.ir.repetition import Repetition
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.settings import host_settings

_MOST_SEEDS = 2**31
_seeds = random.Random()  # of the random numbers of programs
_COMPILED = ("optimizer", "_compile_loss", "_compile_metrics")  # what compile() makes again


def reset_seed(seed: int) -> None:
    """Start the random numbers of programs that are compiled from now on at a seed."""
    _seeds.seed(seed)


def share_weights(variables: Sequence[ModelVariable]) -> None:
    """Give every process the values that variables have in the first."""
    collectives.init()
    for variable in variables:
        collectives.broadcast_(tensor_of(variable).data, 0)


def execute(
    model: keras.Model, options: ModelOptions, kind: str, data: Sequence[object]
) -> list[object]:
    """Results of every step of an execution: logs, or predictions."""
    data = [_without_nothing(batch) for batch in data]
    batches = [[_tensor(leaf) for leaf in keras.tree.flatten(batch)] for batch in data]
    if options.n_processes > 1 and not options.has_common_weights:
        share_weights(model.variables)
        options.has_common_weights = True
    program = _program(model, options, kind, data[0], batches)
    options.last = program
    results = program.run(batches)
    if isinstance(program.step, StepOfModel):
        results = program.step.put_enqueued(results, program.n_replicas)
    if kind != PREDICT and program.n_replicas > 1:
        return [_logs_of_replicas(model, program, results)]
    options.log_stride = 1
    if kind == TRAIN and options.pipelining is not None and options.pipelining.accumulates_outfeed:
        options.log_stride = program.program.settings.repetition.n_accumulation
        results = results[options.log_stride - 1 :: options.log_stride]
    return [keras.tree.pack_sequence_as(program.step.result, flat) for flat in results]


def _logs_of_replicas(
    model: keras.Model, program: KerasProgram, results: Sequence[Sequence[Tensor]]
) -> object:
    """Metrics counted over all replicas; other results as their mean in the last step."""
    metrics = model.get_metrics_result()
    last = results[-program.n_replicas :]
    structure = program.step.result
    if not isinstance(structure, dict) or set(structure) <= set(metrics):
        return metrics
    logs = [keras.tree.pack_sequence_as(structure, list(flat)) for flat in last]
    means = {key: sum(log[key] for log in logs) / len(logs) for key in structure}
    return {**means, **{key: value for key, value in metrics.items() if key in structure}}


def _program(
    model: keras.Model,
    options: ModelOptions,
    kind: str,
    first: object,
    batches: list[list[Tensor]],
) -> KerasProgram:
    """The program for an execution like this, compiled when it is first met."""
    settings = host_settings()
    pipeline = options.pipeline(model)
    repetition = _repetition(model, options, kind, len(batches))
    if pipeline is not None:
        _check_filled(pipeline, repetition, kind)
    structure = keras.tree.map_structure(lambda _leaf: 0, first)
    key = (
        kind,
        repr(structure),
        tuple((tuple(part.shape), part.dtype) for part in batches[0]),
        repetition,
        settings,
        None if pipeline is None else (tuple(pipeline.stages.items()), pipeline.options),
        options.prefetch_depth,
        options.metric_reduction,
        config_in_force().to_json(),
        tuple(v.trainable for v in model.weights),
        *(getattr(model, name, None) for name in _COMPILED),
    )
    if key not in options.programs:
        step = StepOfModel(model, kind, structure, pipeline=pipeline)
        requested = StepSettings(
            repetition=repetition,
            host=settings,
            tiles=tile_settings(settings, options.prefetch_depth, pipeline),
            checks_floats=checks_floats(),
            seed=_seeds.randrange(_MOST_SEEDS),
            runs_on_tiles=settings.tiles == "run",
            placement=PlacementRules() if pipeline is None else pipeline.placement(),
        )
        options.programs[key] = compile_keras(
            step, batches[0], requested, keeps_last=options.metric_reduction == LAST
        )
    return options.programs[key]


def _repetition(model: keras.Model, options: ModelOptions, kind: str, n_batches: int) -> Repetition:
    n_replicas = options.n_replicas(model)
    n_accumulation = options.n_accumulation if kind == TRAIN else 1
    n_of_update = n_accumulation * n_replicas
    if n_batches % n_of_update:
        raise keras_error(
            f"an execution of {n_batches} batches cannot be split: {n_accumulation} are"
            f" accumulated on each of {n_replicas} replicas.",
            hint=f"give compile(steps_per_execution=…) a multiple of {n_accumulation}, and a data"
            " set with a multiple of the batches of an execution",
        )
    scale = 1.0 / (n_replicas * options.n_processes) if kind == TRAIN else 1.0
    if options.reduction in (MEAN, RUNNING_MEAN):
        scale /= n_accumulation
    return Repetition(
        n_batches // n_of_update,
        n_accumulation,
        n_replicas,
        scale,
        n_processes=options.n_processes if kind == TRAIN else 1,
        has_running_mean=options.reduction == RUNNING_MEAN and n_accumulation > 1,
    )


def _check_filled(pipeline: KerasPipeline, repetition: Repetition, kind: str) -> None:
    if kind == TRAIN:
        pipeline.check_accumulation(repetition.n_accumulation)
    else:
        pipeline.check_depth(repetition.n_iterations)


def _without_nothing(batch: object) -> object:
    """A batch as data adapters give it: without targets or weights that are None."""
    return pack_x_y_sample_weight(*unpack_x_y_sample_weight(batch))


def _tensor(leaf: object) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf.detach()
    return torch.as_tensor(leaf)
