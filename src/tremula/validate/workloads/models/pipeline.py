"""A training step over chips and replicas: a small build of it, read for the whole.

Layers are equal, so one of them is built (and one behind it), on a chip between those that have the
embedding and, where it does not return to the first, the output layer. A chip of the program takes
as many times that layer as it has layers, and what it has besides. (Chips with one and two layers
of BERT-Large differ by a layer within 0.1 %.) The rest is counted:

* iterations: micro-batches, and two less than twice the number of stages to fill and empty
* sums of gradients over replicas: a separate program of the collectives library, for as many bytes
* states in streaming memory: to the chip and back, at the rate of the chip's link or of its part of
  the machine's memory, a share of them where replicas share them
* the host: its work around a call, and copies of a call's inputs
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.types import HALF
from tremula.compiler.lower.lower import lower
from tremula.hardware import System
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.target import IPUModel
from tremula.poplibs import gcl, poputil
from tremula.validate.timing import timing_of
from tremula.validate.workloads.model_call import (
    COPIED_BYTES_PER_S,
    CallTime,
    ModelCall,
    compiled_call,
)
from tremula.validate.workloads.models.timeline import (
    ChipTimeline,
    Events,
    Join,
    RepeatedEvents,
    timeline_of,
)
from tremula.validate.workloads.table import ModelledValue

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from tremula.frontends.poptorch.options.options import Options

# Called with a training and its chip before it is timed, by those who only ask which it is.
instead_of_timing: "ContextVar[Callable[[Training, str], None] | None]" = ContextVar(
    "instead_of_timing", default=None
)
SHIFT = "shift"  # the step that ends an iteration of a pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOptimizer:
    """How weights are updated: which states there are, and where."""

    kind: str  # lamb, adam, sgd, rmsprop
    first_is_half: bool = False
    second_is_half: bool = False  # of LAMB and Adam
    accumulates_in_float: bool = False
    is_off_chip: bool = False
    is_sharded: bool = False
    corrects_bias: bool = False

    @property
    def state_bytes(self) -> int:
        """Of a parameter's moments."""
        both = (2 if self.first_is_half else 4) + (2 if self.second_is_half else 4)
        return {"lamb": both, "adam": both, "sgd": 2, "rmsprop": 8}[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A measured training program: what it is made of, and how it is spread over chips."""

    build: "Callable[[Sequence[int]], tuple[nn.Module, Sequence[Tensor]]]"  # of layers per chip
    of: "Reduced"  # what is built, and how the program's chips follow from it
    accumulation: int
    replicas: int
    optimizer: MeasuredOptimizer
    proportions: tuple[float, ...]  # of memory, of each chip; one: of all
    returns: bool = False  # the last stage is on the first chip again
    layers_return: bool = False  # with the first chip's layers, which are not in the first stage
    checkpoint_bytes: int = 2  # of an element that waits for backward; of the last stage two
    dithers_convolutions: bool = False  # they begin at tiles that their dimensions choose
    strides_group_norms: bool = False  # group g has channels g, g + n_groups, …
    updates_per_call: int = 1
    micro_batch_items: float = 1.0
    n_io_tiles: int = 0
    uses_half_partials: bool = True
    n_tiles: int = 0  # of each chip; 0: all of them
    host_s: float | None = None  # around a call; None: that of made-up data
    loading_s: float = 0.0  # of the data of a call, by workers beside the device
    n_host_processes: int = 0  # that copy inputs from shared memory; 0: the framework feeds streams

    @property
    def n_forward_stages(self) -> int:
        return len(self.of.parts) + self.returns

    @property
    def n_built_stages(self) -> int:
        return len(self.of.parts[0]) + self.returns

    def waiting_seconds(self, device_s: float) -> float:
        """What loading takes beyond the device's time."""
        return max(0.0, self.loading_s - device_s)

    @property
    def micro_batches_per_call(self) -> int:
        return self.accumulation * self.replicas * self.updates_per_call

    def copying_seconds(self, micro_batch_bytes: int) -> float:
        """What each host process takes to copy the inputs of its replicas."""
        if not self.n_host_processes:
            return 0.0
        n_bytes = self.micro_batches_per_call * micro_batch_bytes / self.n_host_processes
        return n_bytes / COPIED_BYTES_PER_S

    @property
    def items_per_call(self) -> float:
        return self.micro_batch_items * self.micro_batches_per_call


@dataclass(frozen=True, slots=True)
class Reduced:
    """A pipeline whose chips are each one kind of part, and the program that is made of such parts.

    `parts[c][k]` says how often chip c of the program has the part of built chip k. What chips do
    together, chip c does as built chip `alike[c]`.
    """

    placement: tuple[int, ...]  # layers of built chips
    parts: tuple[tuple[float, ...], ...]
    alike: tuple[int, ...]
    parameters: "Callable[[nn.Module], Sequence[float]]"  # of the part on each built chip

    def applied(self, timeline: ChipTimeline) -> ChipTimeline:
        joined = np.zeros((len(self.parts), timeline.n_chips))
        joined[np.arange(len(self.parts)), list(self.alike)] = 1
        return timeline.mapped(np.array(self.parts, float), joined)


def equal_layers(layers: Sequence[float], *, has_last: bool = False) -> Reduced:
    """Two layers are built, each on a chip, and the first of them counts.

    What comes before is on a chip by itself, and so is what comes behind, unless it is on the first
    chip, too (without `has_last`). The second layer is there so that the first has a layer behind
    it: the gradient that comes from the output layer may be spread over tiles in another way.
    """
    n = len(layers)
    assert n > 1 + has_last, "ends and layers are on different chips"
    rows = [[float(c == 0), float(count), 0.0] for c, count in enumerate(layers)]
    alike = [0] + [1] * (n - 1)
    if has_last:
        rows = [[*row, float(c == n - 1)] for c, row in enumerate(rows)]
        alike[-1] = 3
    parts = tuple(tuple(row) for row in rows)
    return Reduced((0, 1, 1, 0)[: 3 + has_last], parts, tuple(alike), _ends_and_layer)


def _ends_and_layer(model: "nn.Module") -> Sequence[float]:
    """What is behind the layers counts as before them."""
    layer = n_parameters(model.layers[0])  # pyright: ignore[reportIndexIssue, reportArgumentType]
    return n_parameters(model) - 2 * layer, layer, 0.0, 0.0


def whole(n_chips: int) -> Reduced:
    """All of the program is built."""
    parts = tuple(tuple(float(a == b) for b in range(n_chips)) for a in range(n_chips))
    return Reduced(
        (0,) * n_chips, parts, tuple(range(n_chips)),
        lambda model: [n_parameters(model) / n_chips] * n_chips,
    )  # fmt: skip


def time_training(training: Training, chip_name: str) -> CallTime:
    """The time of a call: all updates in it, and the host around it."""
    if instead := instead_of_timing.get():
        instead(training, chip_name)
    call, of = training_call(training), training.of
    built, program = compiled_call(call, chip_name).built()
    timeline = of.applied(timeline_of(built.graph, program))
    parameters = of.parameters(call.model)[: len(of.parts[0])]
    sizes = np.array(of.parts) @ np.array(parameters)
    cycles = training.updates_per_call * _update_cycles(training, timeline, sizes, chip_name)
    host_s = call.host_s if training.host_s is None else training.host_s
    host_s += training.waiting_seconds(cycles / timeline.clock_hz)
    host_s += training.copying_seconds(call.micro_batch_bytes)
    return CallTime(cycles, timeline.clock_hz, host_s)


def throughput(training: Training, chip_name: str) -> ModelledValue:
    """Items of a call by its time."""
    time = time_training(training, chip_name)
    return ModelledValue(
        time.seconds * time.clock_hz, time.clock_hz, n_items=training.items_per_call
    )


def training_call(training: Training, *, keeps_states_off: bool = False) -> ModelCall:
    """A call of the small build; states are on the chip unless they are to be kept off it."""
    n_chips = len(training.of.parts[0])
    model, micro_batch = training.build(training.of.placement)
    return ModelCall(
        model=model,
        micro_batch=micro_batch,
        optimizer=lambda parameters: _optimizer(training.optimizer, parameters),
        gradient_accumulation=2 * training.n_built_stages + 2 if n_chips > 1 else 4,
        is_timed_without_loader=True,
        is_pipelined=n_chips > 1,
        n_tiles=training.n_tiles,
        choose=lambda options: _choose(
            training, n_chips, options, keeps_states_off=keeps_states_off
        ),
    )


def _choose(
    training: Training, n_chips: int, options: "Options", *, keeps_states_off: bool
) -> None:
    import torch

    import poptorch

    if training.uses_half_partials:
        options.Precision.setPartialsType(torch.half)
    options.Precision.enableStochasticRounding(True)
    options.outputMode(poptorch.OutputMode.Sum)
    shares = training.proportions
    chosen = [shares[min(chip, len(shares) - 1)] for chip in range(n_chips)]
    options.setAvailableMemoryProportion({f"IPU{n}": share for n, share in enumerate(chosen)})
    if keeps_states_off:
        away = poptorch.TensorLocationSettings().useOnChipStorage(False)
        options.TensorLocations.setOptimizerLocation(away)
    if training.dithers_convolutions:
        options.Training.setConvolutionDithering(True)
    if training.strides_group_norms:
        options._Popart.set("groupNormStridedChannelGrouping", True)
    if training.n_io_tiles:
        options.TensorLocations.numIOTiles(training.n_io_tiles)


def _optimizer(
    chosen: MeasuredOptimizer, parameters: "Iterable[nn.Parameter]"
) -> "torch.optim.Optimizer":
    import torch

    from poptorch import optim

    first = torch.half if chosen.first_is_half else torch.float
    second = torch.half if chosen.second_is_half else torch.float
    total = torch.float if chosen.accumulates_in_float else torch.half
    if chosen.kind == "lamb":
        return optim.LAMB(
            parameters, lr=1e-3, bias_correction=chosen.corrects_bias, accum_type=total,
            first_order_momentum_accum_type=first, second_order_momentum_accum_type=second,
        )  # fmt: skip
    if chosen.kind == "adam":
        return optim.AdamW(
            parameters, lr=1e-3, bias_correction=chosen.corrects_bias, accum_type=total,
            first_order_momentum_accum_type=first, second_order_momentum_accum_type=second,
        )  # fmt: skip
    if chosen.kind == "rmsprop":
        return optim.RMSprop(parameters, lr=1e-3, momentum=0.9)
    return optim.SGD(
        parameters, lr=1e-3, momentum=0.9, weight_decay=1e-4, accum_type=total,
        velocity_accum_type=first if chosen.first_is_half else total,
    )  # fmt: skip


def n_parameters(model: "nn.Module") -> float:
    return float(sum(parameter.numel() for parameter in model.parameters()))


# -- one update ------------------------------------------------------------------------------------


def _update_cycles(
    training: Training, timeline: ChipTimeline, sizes: np.ndarray, chip_name: str
) -> float:
    """Micro-batches through the pipeline, the update, sums over replicas, states to and fro."""
    filling, loop, update = _parts(timeline.events)
    iteration = _per_iteration(timeline, loop)
    fill = replace(timeline, events=filling).cycles
    n_built, n_wanted = (2 * n - 2 for n in (training.n_built_stages, training.n_forward_stages))
    n_full = training.accumulation - n_wanted
    micro_batches = iteration * n_full + (fill * n_wanted / n_built if n_built else 0.0)
    shared = training.replicas if training.optimizer.is_sharded else 1
    updating = replace(timeline, events=update).cycles / shared
    rest_s = _sum_seconds(training, sizes, chip_name) + _state_seconds(training, sizes, chip_name)
    return micro_batches + updating + rest_s * timeline.clock_hz


def _parts(events: Events) -> tuple[Events, RepeatedEvents, Events]:
    """Iterations that fill and empty the pipeline; its loop; what comes after all of them."""
    loops = [event for event in events if isinstance(event, RepeatedEvents)]
    turning = [loop for loop in loops if any(map(_ends_iteration, loop.body))]
    longest = max(turning or loops, key=_total_local)
    ends = [n for n, event in enumerate(events) if _ends_iteration(event)]
    last = max([*ends, events.index(longest)])
    filling = tuple(event for event in events[: last + 1] if event is not longest)
    return filling, longest, events[last + 1 :]


def _total_local(loop: RepeatedEvents) -> float:
    """Cycles of a loop, about: a layer may have loops, too, over the words of an LSTM."""
    n_chips = len(next(_cycles_in(loop.body)))
    return loop.count * ChipTimeline(loop.body, n_chips, 1.0).local_cycles


def _cycles_in(events: Events) -> Iterator[np.ndarray]:
    for event in events:
        if isinstance(event, RepeatedEvents):
            yield from _cycles_in(event.body)
        else:
            yield event.cycles


def _ends_iteration(event: object) -> bool:
    return isinstance(event, Join) and event.name.endswith(SHIFT)


def _per_iteration(timeline: ChipTimeline, loop: RepeatedEvents) -> float:
    times = [replace(timeline, events=(RepeatedEvents(n, loop.body),)).cycles for n in (4, 8)]
    return (times[1] - times[0]) / 4


def _sum_seconds(training: Training, sizes: np.ndarray, chip_name: str) -> float:
    """Gradients summed over replicas; a sharded update gathers weights instead of half of it."""
    if training.replicas == 1:
        return 0.0
    return all_reduce_seconds(
        chip_name, training.replicas, len(sizes), int(sizes.max()) * len(sizes)
    )


@cache
def all_reduce_seconds(chip_name: str, n_replicas: int, n_chips: int, n_elements: int) -> float:
    """Halves on all tiles of all chips of a replica, summed over replicas."""
    target = IPUModel(chip_name, n_replicas * n_chips).create_target()
    graph, sequence = Graph(target, n_replicas), ProgramSequence()
    tensor = graph.add_variable(HALF, [n_elements], "gradients")
    poputil.map_tensor_linearly(graph, tensor)
    gcl.all_reduce_in_place(graph, tensor, sequence)
    timing = timing_of(lower(graph, sequence))
    return timing.cycles / timing.clock_hz


def _state_seconds(training: Training, sizes: np.ndarray, chip_name: str) -> float:
    """Moments to the chips and back; chips of a machine share its memory."""
    optimizer = training.optimizer
    if not optimizer.is_off_chip:
        return 0.0
    system = IPUModel(chip_name, training.replicas * len(sizes)).create_target().system
    assert isinstance(system, System), "a target always gets a system"
    shared = training.replicas if optimizer.is_sharded else 1
    n_bytes = 2 * optimizer.state_bytes * sizes / shared
    n_together = min(system.n_ipus_per_machine, len(sizes) * training.replicas)
    own = float(n_bytes.max()) / (system.chip.host_link_gbytes_per_s * 1e9)
    of_machine = float(n_bytes.mean()) * n_together / (system.dram_gbytes_per_s_per_machine * 1e9)
    return max(own, of_machine)
