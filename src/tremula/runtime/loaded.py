"""A loaded program: an executable in memory, with its clock and the state of its machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.options import OptionValues
from tremula.base.types import as_type
from tremula.codelets.python.random import (
    MODE_WORD,
    NAN_ON_OVERFLOW,
    SATURATE,
    STOCHASTIC,
    STOCHASTIC_QUARTERS,
)
from tremula.compiler.executable.executable import Executable
from tremula.runtime.clock import Clock
from tremula.runtime.host_connections import HostConnections
from tremula.runtime.storage import Storage, build_tables

if TYPE_CHECKING:  # imports Numba
    from tremula.runtime.machine import NativeMachine


@dataclass(slots=True)
class MachineState:
    """Which results stop the machine, and how it rounds halves.

    Programs set it; it lasts from run to run until the engine is loaded again.
    """

    flags: dict[str, bool] = field(default_factory=dict)

    def update(self, values: Mapping[str, object]) -> None:
        self.flags.update({name: bool(value) for name, value in values.items()})

    @property
    def checks_results(self) -> bool:
        """True if some floating-point exception is enabled."""
        return any(self.flags.get(name) for name in ("inv", "div0", "oflo"))

    @property
    def rounding_mode(self) -> int:
        """The mode word of every worker; 0 is rounding to nearest, and infinity on overflow.

        A program that never says what overflow gives gets infinity, as does one that stops on
        overflow: there the infinity is what is noticed.
        """
        mode = STOCHASTIC if self.flags.get("esr") else 0
        if self.flags.get("nanoo"):
            return mode | NAN_ON_OVERFLOW
        saturates = "nanoo" in self.flags and not self.flags.get("oflo")
        return mode | SATURATE if saturates else mode


class LoadedProgram:
    """What `Engine.load` makes, and everything that runs a step works on."""

    def __init__(
        self, executable: Executable, host: HostConnections, options: OptionValues, n_threads: int
    ):
        seed = options.whole("tremula.seed")
        self.executable, self.host = executable, host
        self.n_replicas = executable.replication_factor
        self.tables = build_tables(executable, n_threads)
        self.storage = Storage(executable, seed)
        self.clock = Clock(executable)
        self.machine_state = MachineState()
        self._rounding = 0
        if options.flag("debug.floatPointOpException"):
            self.machine_state.update({"inv": True, "div0": True, "oflo": True})
        if options.flag("debug.nanOverflowMode"):
            self.machine_state.update({"nanoo": True})
        self.set_rounding()
        self.is_strict = options.flag("debug.strict")
        self.strict_rights: dict = {}  # of compute sets, filled by strict mode
        self.shuffle = np.random.Generator(np.random.PCG64(seed))
        self._remote: dict[tuple[str, int], np.ndarray] = {}
        self._n_threads = n_threads

    @cached_property
    def machine(self) -> "NativeMachine":
        """What the interpreter reads, made on first use."""
        from tremula.runtime.machine import NativeMachine  # imports Numba

        return NativeMachine(self.executable, self.tables, self.storage, self._n_threads)

    def set_rounding(self) -> None:
        """Give all workers the rounding mode that programs chose."""
        mode = self.machine_state.rounding_mode
        if mode != self._rounding:
            self._rounding = mode
            self.tables.use_modes(mode != 0)
            self.clock.counted_steps.forget_kernels()
            if mode & STOCHASTIC and self.executable.target.chip.has_quarter_units:
                mode |= STOCHASTIC_QUARTERS
            for replica in range(self.n_replicas):
                self.storage.worker_states(replica)[..., MODE_WORD] = mode

    @property
    def checks_steps(self) -> bool:
        """True if Python runs every compute step, to look at what it did."""
        return self.is_strict or self.machine_state.checks_results

    def remote_memory(self, handle: str, replica: int) -> np.ndarray:
        """The rows of a remote buffer, made on first use."""
        key = (handle, replica)
        if key not in self._remote:
            buffer = self.host.buffer(handle)
            shape = (buffer.repeats, buffer.n_elements)
            self._remote[key] = np.zeros(shape, as_type(buffer.type_name).dtype)
        return self._remote[key]
