"""One call of a model: its tile program by the cost model, and the host around it.

A model joins with a function that makes a `ModelCall`: a module, with its loss if it trains, the
tensors of one micro-batch, how micro-batches make up a call, and options.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tremula.base.provenance import fitted
from tremula.compiler.executable.executable import Executable
from tremula.compiler.lower.lower import lower
from tremula.runtime.clock import Clock
from tremula.runtime.forecast import ForecastWalk
from tremula.validate.timing import timing_of

if TYPE_CHECKING:  # models need PyTorch, and only those who ask for their rows pay
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from tremula.frontends.poptorch.executor.poplar_executor import PoplarExecutor
    from tremula.frontends.poptorch.options.options import Options
    from tremula.ir.run.tile_program import TileProgram

FAMILY = "whole models"

# What the host does around a call, in seconds. Fitted to one program at several numbers of replicas
# (SchNet on packed QM9 on Bow, strong_scaling.ipynb of graphcore-research/hydronet-gnn): with
# made-up data to 64 IPUs, with real data to 1, 4, 8, 16 and 32. A loader hands a batch over, the
# framework gives each replica its part: the host does so between calls, whatever the device takes.
HOST_S_PER_CALL = fitted(
    "HOST_S_PER_CALL", 1.4e-3, "s of the host around a call, made-up data",
    "SchNet with synthetic data on 64 Bow chips", ("schnet-qm9-synth-64",),
)  # fmt: skip
_LOADED = "SchNet on packed QM9 at 1, 4, 8, 16 and 32 chips (strong_scaling.ipynb of hydronet-gnn)"
LOADED_HOST_S_PER_CALL = fitted(
    "LOADED_HOST_S_PER_CALL", 17e-3, "s of the host around a call, loaded data", _LOADED
)
LOADED_HOST_S_PER_REPLICA = fitted(
    "LOADED_HOST_S_PER_REPLICA", 0.2e-3, "s of the host for each replica of a call", _LOADED
)

# Loaders of PopTorch are processes that leave a call's data in shared memory. The callbacks of the
# input streams copy it from there (PopART's devicex: a memcpy for each micro-batch and replica), in
# one thread of each host process, and the device waits. A core copies 7.5 GB a second of shared
# memory that another process wrote and that it reads for the first time, in pieces of 1.2 MB
# (taken with NumPy on an Arm server; 14.5 GB of memory that it has read before).
COPIED_BYTES_PER_S = 7.5e9

_N_ITERATIONS = 2  # built in the timed program: their difference is one iteration


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call as PopTorch's options of the same names say; `micro_batch` is that of one replica."""

    model: "nn.Module"  # returns its loss, if it trains
    micro_batch: "Sequence[Tensor]"
    optimizer: "Callable[[Any], Optimizer] | None" = None  # of parameters; without, inference
    device_iterations: int = 1
    gradient_accumulation: int = 1
    replication_factor: int = 1
    uses_made_up_data: bool = False
    is_timed_without_loader: bool = False  # the clock ran around the call alone
    is_pipelined: bool = False
    n_tiles: int = 0  # of each chip; 0: all of them
    choose: "Callable[[Options], object]" = _nothing  # other options
    prepare: "Callable[[PoplarExecutor], object]" = _nothing  # before it is compiled

    @property
    def n_micro_batches(self) -> int:
        return self.device_iterations * self.gradient_accumulation * self.replication_factor

    @property
    def micro_batch_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.micro_batch)

    @property
    def copying_s(self) -> float:
        """What the host's thread takes to copy the inputs of a call."""
        if self.uses_made_up_data:
            return 0.0
        return self.n_micro_batches * self.micro_batch_bytes / COPIED_BYTES_PER_S

    @property
    def host_s(self) -> float:
        if self.uses_made_up_data or self.is_timed_without_loader:
            return HOST_S_PER_CALL
        return loaded_host_seconds(self.replication_factor)


@dataclass(frozen=True, slots=True)
class CallTime:
    """What a call takes."""

    cycles: float  # of the device
    clock_hz: float
    host_s: float

    @property
    def seconds(self) -> float:
        return self.cycles / self.clock_hz + self.host_s


def loaded_host_seconds(n_replicas: int) -> float:
    """What the host does around a call whose data a loader hands over."""
    return LOADED_HOST_S_PER_CALL + LOADED_HOST_S_PER_REPLICA * n_replicas


def time_call(call: ModelCall, chip_name: str) -> CallTime:
    """The time of a call.

    Of a pipeline the whole program is walked, since its chips work side by side. Otherwise steps
    are counted, and the loop over iterations is built short, and counted as long as it is.
    """
    host_s = call.host_s + call.copying_s
    if call.is_pipelined:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it does not fit: we ask how long it takes
            program = compiled_call(call, chip_name).program().executable
        return CallTime(_walked_cycles(program), program.target.chip.clock_hz, host_s)
    (once, per_iteration), clock_hz = _counted_cycles(call, chip_name)
    return CallTime(once + call.device_iterations * per_iteration, clock_hz, host_s)


def _walked_cycles(executable: Executable) -> int:
    clock = Clock(executable)
    ForecastWalk(executable, clock).run(executable.entries[0])
    return clock.total_cycles


def _counted_cycles(call: ModelCall, chip_name: str) -> tuple[tuple[float, float], float]:
    """Cycles outside of the loop over iterations and of one turn of it; and the clock."""
    built, program = compiled_call(
        replace(call, device_iterations=_N_ITERATIONS), chip_name
    ).built()
    timing = timing_of(lower(built.graph, program))
    once = sum(cycles for _, n, cycles in timing.steps if n == 1)
    return (once, (timing.cycles - once) / _N_ITERATIONS), timing.clock_hz


def compiled_call(call: ModelCall, chip_name: str) -> "TileProgram":
    """The tile program of a call on machines with this chip, not yet built."""
    import poptorch

    options = poptorch.Options()
    options.deviceIterations(call.device_iterations)
    options.replicationFactor(call.replication_factor)
    options.Training.gradientAccumulation(call.gradient_accumulation)
    options.enableSyntheticData(call.uses_made_up_data)
    options.connectionType(poptorch.ConnectionType.Never)  # any number of chips
    options.Popart.set("engineOptions", {"debug.allowOutOfMemory": "true"})
    if call.is_pipelined:
        stages = poptorch.AutoStage.AutoIncrement
        options.setExecutionStrategy(poptorch.PipelinedExecution(stages))
    call.choose(options)
    if call.optimizer is None:
        wrapped = poptorch.inferenceModel(call.model, options)
    else:
        optimizer = call.optimizer(call.model.parameters())
        wrapped = poptorch.trainingModel(call.model, options, optimizer)
    call.prepare(wrapped)
    n_times = call.n_micro_batches
    wrapped.compile(*(t.repeat(n_times, *[1] * (t.dim() - 1)) for t in call.micro_batch))
    tiles = wrapped.tile_program()
    tiles.settings = replace(tiles.settings, chip=chip_name, n_tiles=call.n_tiles)
    return tiles
