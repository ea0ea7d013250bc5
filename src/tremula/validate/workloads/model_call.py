"""One call of a model that trains: its tile program by the cost model, and the host around it.

A model joins with a function that makes a `Call`: a module with its loss, the tensors of one
micro-batch, and how micro-batches make up a call. Everything else is here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tremula.compiler.lower.lower import lower
from tremula.validate.timing import timing_of

if TYPE_CHECKING:  # models need PyTorch, and only those who ask for their rows pay
    from torch import Tensor, nn

# What the host does around a call, in seconds. Fitted to one program at several numbers of replicas
# (SchNet on packed QM9 on Bow, strong_scaling.ipynb of graphcore-research/hydronet-gnn): with
# made-up data to 64 IPUs, with real data to 1, 4, 8, 16 and 32. A loader hands a batch over, the
# framework gives each replica its part: the host does so between calls, whatever the device takes.
HOST_S_PER_CALL = 1.4e-3
LOADED_HOST_S_PER_CALL, LOADED_HOST_S_PER_REPLICA = 17e-3, 0.2e-3

_N_ITERATIONS = 2  # built in the timed program: their difference is one iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as PopTorch's options of the same names say; `micro_batch` is that of one replica."""

    model: "nn.Module"  # returns its loss
    micro_batch: "Sequence[Tensor]"
    device_iterations: int = 1
    gradient_accumulation: int = 1
    replication_factor: int = 1
    uses_made_up_data: bool = False
    popart: "Mapping[str, object]" = field(default_factory=dict)  # settings by PopART's names

    @property
    def n_micro_batches(self) -> int:
        return self.device_iterations * self.gradient_accumulation * self.replication_factor


@dataclass(frozen=True, slots=True)
class CallTime:
    """What a call takes."""

    cycles: float  # of the device
    clock_hz: float
    host_s: float

    @property
    def seconds(self) -> float:
        return self.cycles / self.clock_hz + self.host_s


def time_call(call: Call, chip_name: str) -> CallTime:
    """The time of a call; its loop over iterations is built short, and counted as long as it is."""
    cycles, clock_hz = _device_cycles(replace(call, device_iterations=_N_ITERATIONS), chip_name)
    once, per_iteration = cycles
    host_s = HOST_S_PER_CALL
    if not call.uses_made_up_data:
        host_s = LOADED_HOST_S_PER_CALL + LOADED_HOST_S_PER_REPLICA * call.replication_factor
    return CallTime(once + call.device_iterations * per_iteration, clock_hz, host_s)


def _device_cycles(call: Call, chip_name: str) -> tuple[tuple[float, float], float]:
    """Cycles outside of the loop over iterations and of one turn of it; and the clock."""
    import poptorch
    from poptorch.optim import Adam

    options = poptorch.Options()
    options.deviceIterations(call.device_iterations)
    options.replicationFactor(call.replication_factor)
    options.Training.gradientAccumulation(call.gradient_accumulation)
    options.enableSyntheticData(call.uses_made_up_data)
    for name, value in call.popart.items():
        options._Popart.set(name, value)
    optimizer = Adam(call.model.parameters(), lr=1e-3)
    training = poptorch.trainingModel(call.model, options, optimizer)
    n_times = call.n_micro_batches
    training.compile(*(t.repeat(n_times, *[1] * (t.dim() - 1)) for t in call.micro_batch))
    tiles = training._needs_compiled().core.tiles
    tiles.settings = replace(tiles.settings, chip=chip_name)
    built, program = tiles.built()
    timing = timing_of(lower(built.graph, program))
    once = sum(cycles for _, n, cycles in timing.steps if n == 1)
    return (once, (timing.cycles - once) / call.device_iterations), timing.clock_hz
