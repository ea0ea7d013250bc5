"""One point of a sweep, computed from plain values: in this process, a worker, or on a cluster."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from tremula.base.storage.strict_json import JsonObject
from tremula.explore.candidates import Candidate
from tremula.explore.cut_points import ModelSegments, balanced_cuts, segments_of
from tremula.explore.script import task_of_script
from tremula.explore.space import Job
from tremula.explore.trial import Task, TrialOutcome, try_candidate
from tremula.hardware import Chip, System, chip, single


def run_point(job: Job) -> JsonObject:
    """Compile and forecast one point; the outcome as plain values."""
    options = dict(job["options"])
    candidate, machine = _candidate_of(job, options), None
    try:
        machine = _system_of(job, candidate.n_chips)
        task = _task_of(job, machine, options.get("batch"))
    except Exception as error:  # noqa: BLE001 - a point that cannot be made is an outcome, too
        return TrialOutcome(candidate, error=str(error).splitlines()[0]).as_dict()
    return try_candidate(task, candidate).as_dict()


def _task_of(job: Job, machine: System, batch: int | None) -> Task:
    """The script's model with micro-batches of another size, on another machine."""
    task = _script_task(job["script"], tuple(job["arguments"]))
    args, kwargs = task.args, task.kwargs
    if batch is not None and batch != task.n_samples:
        args, kwargs = (_resized(value, batch) for value in (args, kwargs))
    return Task(task.model, args, machine, kwargs, task.options, task.optimizer, task.is_training)


@lru_cache(maxsize=4)  # a worker computes many points of one model
def _script_task(script: str, arguments: tuple[str, ...]) -> Task:
    return task_of_script(Path(script), arguments, single("bow"))


@lru_cache(maxsize=4)
def _segments(script: str, arguments: tuple[str, ...]) -> ModelSegments:
    task = _script_task(script, arguments)
    return segments_of(task.model, task.args, task.kwargs)


def _resized(value: object, n: int) -> Any:  # noqa: ANN401 - any structure of tensors
    def cut(tensor: Tensor) -> Tensor:
        if not tensor.ndim:
            return tensor
        return torch.cat([tensor] * -(-n // tensor.shape[0]))[:n]

    return tree_map_only(Tensor, cut, value)


def _system_of(job: Job, n_chips: int) -> System:
    return single(chip_of(job), n_chips)


def chip_of(job: Job) -> Chip:
    """The chip of a point: its base with the swept constants."""
    changes = dict(job["chip"])
    base = chip(changes.pop("base", "bow"))
    return base.replace(name=f"{base.name}, swept", **changes) if changes else base


def _candidate_of(job: Job, record: JsonObject) -> Candidate:
    task = _script_task(job["script"], tuple(job["arguments"]))
    n_stages, n_replicas = int(record.get("stages", 1)), int(record.get("replicas", 1))
    cuts: tuple[str, ...] = ()
    home = None
    if n_stages > 1:
        segments = _segments(job["script"], tuple(job["arguments"]))
        flops = segments.n_flops + 1e-6 * segments.n_flops.sum()
        rows = balanced_cuts(flops, min(n_stages, len(segments)))
        cuts, home = tuple(segments.names[row - 1] for row in rows), segments.home
    n_pipeline = n_stages + (home is not None)
    least = 2 * n_pipeline - 1 if task.is_training else n_pipeline
    n_micro = max(int(record.get("accumulation", 1)), least)
    return Candidate(
        cuts,
        n_replicas,
        accumulation=n_micro if task.is_training else 1,
        device_iterations=1 if task.is_training else n_micro,
        recomputes=record.get("recomputes"),
        memory_proportion=record.get("memory_proportion"),
        states_off_chip=bool(record.get("states_off_chip", False)),
        shards_states=bool(record.get("shards_states", False)),
        merges_sums=bool(record.get("merges_sums", False)),
        home=home,
    )
