"""`strategy.run(function, args)`: a loop over batches that a script wrote, as one compiled program.

The function runs twice, each time for one round: once to learn what it trains and how often it goes
round, once to be recorded. What it reads must be an argument, or a name of its module or its
enclosing function.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import keras
import torch
from torch import Tensor

from tremula.frontends.keras.config import config_in_force
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.execution import share_weights
from tremula.frontends.keras.loops.queues import IPUInfeedQueue, IPUIterator, IPUOutfeedQueue
from tremula.frontends.keras.loops.tape import Round, recorded_round
from tremula.frontends.keras.machine import checks_floats, tile_settings
from tremula.frontends.keras.optimiser import KerasRule, rule_of
from tremula.frontends.keras.program import KerasProgram, compile_keras
from tremula.frontends.keras.step import ModelState, write_back
from tremula.frontends.keras.tracing import recorded_keras, variables_set_to
from tremula.ir.repetition import Repetition
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.settings import host_settings

LOOP = "loop"
_Queue = TypeVar("_Queue")
_programs: dict[tuple, "CompiledLoop"] = {}


@dataclass
class RecordedLoop:
    """A round of a function, with everything it reads."""

    function: Callable[..., object]
    args: list[object]
    infeed: IPUInfeedQueue | None
    outfeed: IPUOutfeedQueue | None
    structure: object  # of a batch and of the arguments that are arrays
    round: Round = field(default_factory=Round)
    result: object = None  # structure of (what it enqueued, what it returned)
    kind: str = LOOP

    def __post_init__(self) -> None:
        objects = _reachable(self.function, self.args)
        metrics = [o for o in objects if isinstance(o, keras.metrics.Metric)]
        self.counted = [v for metric in metrics for v in metric.variables]
        self._found = _variables(objects)

    def learn(self, flat: Sequence[Tensor]) -> None:
        """Run a round on real values, to see what it trains; nothing that it assigns stays."""
        with keras.StatelessScope(), recorded_round() as self.round:
            self._call(flat)
        if self.round.optimizer is not None and not self.round.optimizer.built:
            self.round.optimizer.build(self.round.trained)
        trained = self.round.trained
        rest = {id(v): v for v in self._found}
        own = getattr(self.round.optimizer, "variables", [])
        for variable in (*trained, *own):
            rest.pop(id(variable), None)
        self.model_state = ModelState(trained, list(rest.values()))

    @property
    def scale(self) -> keras.Variable | None:
        """The variable with the scale of the loss."""
        return getattr(self.round.optimizer, "dynamic_scale", None)

    def rule(self) -> KerasRule | None:
        """How weights are updated, if they are."""
        if self.round.optimizer is None:
            return None
        names = self.model_state.names[: len(self.model_state.trained)]
        return rule_of(self.round.optimizer, self.model_state.trained, names)

    def record(self, flat: list[Tensor]) -> tuple[list[Tensor], None]:
        """Run a round on fake tensors; flat results."""
        before = self.model_state.tensors()
        with (
            recorded_keras(),
            variables_set_to(self.model_state.variables, before) as scope,
            recorded_round(),
        ):
            self.result = self._call(flat)
            leaves = keras.tree.flatten(self.result)
            outputs = [_detached(leaf) for leaf in leaves]
        write_back(self.model_state, scope, before)
        return outputs, None

    def _call(self, flat: Sequence[Tensor]) -> tuple[list[object], list[object]]:
        batch, values = keras.tree.pack_sequence_as(self.structure, list(flat))
        arrays = iter(values)
        args = [next(arrays) if _is_array(arg) else arg for arg in self.args]
        if self.infeed is not None:
            self.infeed._stand_in = [batch]
        if self.outfeed is not None:
            self.outfeed._recorded = []
        try:
            returned = self.function(*args)
            enqueued = self.outfeed._recorded if self.outfeed is not None else []
            return list(enqueued or []), [] if returned is None else [returned]
        finally:
            if self.infeed is not None:
                self.infeed._stand_in = []
            if self.outfeed is not None:
                self.outfeed._recorded = None


@dataclass(frozen=True)
class CompiledLoop:
    """A loop, ready to run for a number of rounds."""

    loop: RecordedLoop
    program: KerasProgram


def run_loop(
    function: Callable[..., object],
    args: Sequence[object],
    n_replicas: int,
    n_processes: int = 1,
) -> object:
    """Run a function on the device; what it returns in the last round."""
    args = [_iterator(arg) for arg in args]
    objects = _reachable(function, args)
    infeed = _only(objects, IPUInfeedQueue, "infeed queue or iterator")
    outfeed = _only(objects, IPUOutfeedQueue, "outfeed queue")
    first = infeed.take(1) if infeed is not None else []
    values = [arg for arg in args if _is_array(arg)]
    counts = (n_replicas, n_processes)
    compiled = _compiled(function, args, infeed, outfeed, (first[:1], values), counts)
    repetition = compiled.program.program.settings.repetition
    more = repetition.n_micro_batches - 1
    batches = [*first, *(infeed.take(more) if infeed is not None and more else [])]
    flat = [_flat(batches[i] if infeed is not None else None, values) for i in range(more + 1)]
    result = [
        keras.tree.pack_sequence_as(compiled.loop.result, results)
        for results in compiled.program.run(flat)
    ]
    if outfeed is not None:
        for enqueued, _ in result:
            outfeed.enqueue(*enqueued)
    returned = result[-1][1]
    return returned[0] if returned else None


def _compiled(
    function: Callable[..., object],
    args: list[object],
    infeed: IPUInfeedQueue | None,
    outfeed: IPUOutfeedQueue | None,
    data: tuple[list[object], list[object]],
    counts: tuple[int, int],
) -> CompiledLoop:
    first, values = data
    n_replicas, n_processes = counts
    flat = _flat(first[0] if first else None, values)
    host = host_settings()
    numbers = tuple(arg for arg in args if isinstance(arg, int | float | str))
    key = (
        function,
        tuple((tuple(part.shape), part.dtype) for part in flat),
        numbers,
        tuple(id(arg) for arg in args if not _is_array(arg) and not isinstance(arg, IPUIterator)),
        counts,
        host,
        config_in_force().to_json(),
    )
    if key in _programs:
        known = _programs[key]
        known.loop.infeed, known.loop.outfeed, known.loop.args = infeed, outfeed, args
        return known
    structure = keras.tree.map_structure(lambda _leaf: 0, (first[0] if first else (), values))
    loop = RecordedLoop(function, args, infeed, outfeed, structure)
    loop.learn(flat)
    if n_processes > 1:
        share_weights(loop.model_state.variables)
    settings = StepSettings(
        repetition=Repetition(
            max(1, loop.round.n_rounds),
            1,
            n_replicas,
            gradient_scale=1.0 / (n_replicas * n_processes),
            n_processes=n_processes if loop.round.optimizer is not None else 1,
        ),
        host=host,
        tiles=tile_settings(host, infeed.prefetch_depth if infeed is not None else None),
        checks_floats=checks_floats(),
        runs_on_tiles=host.tiles == "run",
    )
    _programs[key] = CompiledLoop(loop, compile_keras(loop, flat, settings))
    return _programs[key]


def _detached(leaf: object) -> Tensor:
    tensor = keras.ops.convert_to_tensor(leaf)
    assert isinstance(tensor, Tensor), "Keras computes with PyTorch"
    return tensor.detach()


def _flat(batch: object, arrays: list[object]) -> list[Tensor]:
    leaves = keras.tree.flatten((() if batch is None else batch, arrays))
    return [torch.as_tensor(keras.ops.convert_to_numpy(leaf)) for leaf in leaves]


def _is_array(value: object) -> bool:
    is_number = isinstance(value, bool | int | float | str)
    has_shape = hasattr(value, "shape") and hasattr(value, "dtype")
    return has_shape and not is_number and not isinstance(value, keras.Variable)


def _iterator(arg: object) -> object:
    """An iterator of a data set as a queue, which can hand out stand-ins."""
    if isinstance(arg, Iterator) and not isinstance(arg, IPUInfeedQueue):
        return IPUIterator(arg)
    return arg


def _only(objects: Sequence[object], kind: type[_Queue], what: str) -> _Queue | None:
    result = [o for o in objects if isinstance(o, kind)]
    if len(result) > 1:
        raise keras_error(f"a compiled loop has one {what}; this one reads {len(result)}.")
    return result[0] if result else None


def _reachable(function: Callable[..., object], args: Sequence[object]) -> list[object]:
    """Arguments, and what the function's code names in its module and around it."""
    inner = getattr(function, "__wrapped__", function)
    code = getattr(inner, "__code__", None)
    names = code.co_names if code is not None else ()
    module = getattr(inner, "__globals__", {})
    cells = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or ()]
    result = [*args, *cells, *(module[name] for name in names if name in module)]
    owner = getattr(inner, "__self__", None)
    unique = {id(value): value for value in (*result, owner, inner) if value is not None}
    return list(unique.values())


def _variables(objects: Sequence[object]) -> list[keras.Variable]:
    result: dict[int, keras.Variable] = {}
    for each in objects:
        if isinstance(each, keras.Variable):
            result[id(each)] = each
        elif isinstance(each, keras.layers.Layer | keras.metrics.Metric | keras.Optimizer):
            result.update({id(v): v for v in each.variables})
    return list(result.values())
