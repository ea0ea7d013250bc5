"""Engine: loads an executable and runs its programs, natively, with the modelled clock."""

import sys
import time
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from typing import IO, Any

import numpy as np

from tremula.base.errors import (
    ControlProgramError,
    GraphMemoryAllocationError,
    GraphReplicationError,
    InvalidOption,
    RuntimeFailure,
    StreamConnectionError,
    TensorIoStateError,
    TypeMismatch,
    suggest,
)
from tremula.base.options import OptionValues, parse_options
from tremula.base.processes import n_cores
from tremula.base.tracing import POPLAR, span
from tremula.base.types import as_type
from tremula.compiler.compile import Progress, compile_graph
from tremula.compiler.executable.executable import Executable
from tremula.compiler.lower.lower import Programs
from tremula.compiler.program_ir import Opcode, StepKind
from tremula.compiler.report.profile_summary import profile_summary
from tremula.compiler.report.report import ProgramReport, make_report
from tremula.poplar.graph import Graph
from tremula.poplar.spellings import add_cpp_spellings
from tremula.poplar.target import Device
from tremula.runtime.auto_report import auto_report
from tremula.runtime.clock import Clock
from tremula.runtime.device_load import LoadMeter
from tremula.runtime.host_connections import CallbackPort, HostConnections, RingPort, StreamCallback
from tremula.runtime.host_steps import run_host_step
from tremula.runtime.interpreter import record
from tremula.runtime.loaded import LoadedProgram
from tremula.runtime.memory_spans import Address, memory_between
from tremula.runtime.storage import host_array
from tremula.runtime.vertex_prints import vertex_prints_to

# The interpreter comes back about this often, so that Ctrl-C and stop() take effect.
SECONDS_BETWEEN_RETURNS = 0.1


class Engine:
    """Runs programs.

    >>> engine = Engine(graph, [program])          # doctest: +SKIP
    >>> engine.load().run()                        # doctest: +SKIP
    """

    def __init__(
        self,
        graph: Graph | Executable,
        programs: Programs | None = None,
        options: Mapping[str, object] | None = None,
        progress: Progress | None = None,
        writes_reports: bool = True,
    ):
        self.options: OptionValues = parse_options(options)
        self._auto_report = auto_report(self.options) if writes_reports else None
        if isinstance(graph, Executable):
            self.executable = graph
        else:
            self.executable = self._compiled(graph, programs or (), options, progress)
        self.n_replicas = self.executable.replication_factor
        self.host = HostConnections(self.executable.host)
        self._loaded: LoadedProgram | None = None
        self._registers: np.ndarray | None = None  # of the program that runs now
        self._vertex_stream: IO[str] | None = None  # for what C++ codelets print
        self._meter: LoadMeter | None = None  # reports to a controller what runs, on a partition

    def _compiled(
        self,
        graph: Graph,
        programs: Programs,
        options: Mapping[str, object] | None,
        progress: Progress | None,
    ) -> Executable:
        try:
            with span(POPLAR, "Engine.compile"):
                return compile_graph(graph, programs, options, progress)
        except GraphMemoryAllocationError as error:
            # The report of a program that does not fit is the most useful one.
            if self._auto_report is not None and isinstance(error.executable, Executable):
                self._auto_report.write(error.executable, None)
            raise

    # -- loading and running -----------------------------------------------------------------------

    def load(self, device: Device | None = None) -> "Engine":
        """Compile the kernels, write initial values, reset state and clock. Returns itself."""
        with span(POPLAR, "Engine.load"):
            self._load(device)
        return self

    def _load(self, device: Device | None) -> None:
        self._check_device(device)
        executable = self.executable
        lease = device.lease if device is not None else None
        self._meter = None if lease is None else LoadMeter(lease, executable)
        self._n_threads = self.options.whole("tremula.threads") or n_cores()
        self._loaded = loaded = LoadedProgram(executable, self.host, self.options, self._n_threads)
        self._is_execute = np.array([s.kind is StepKind.EXECUTE for s in executable.steps], bool)
        self._stops = np.zeros(len(executable.steps), bool)
        self._update_stops()
        if loaded.is_strict:
            from tremula.runtime.strict import poison_uninitialised  # imports Numba

            poison_uninitialised(loaded)
        self.host.rewind()
        # Running nothing makes the interpreter ready: it compiles once per machine, in seconds.
        self._run_from(int(np.flatnonzero(executable.code[:, 0] == Opcode.END)[0]))
        if self._auto_report is not None:
            self._auto_report.watch(self, executable, loaded.clock)

    def _check_device(self, device: Device | None) -> None:
        mine = self.executable.target
        n_ipus = mine.n_ipus * self.n_replicas
        if device is not None and not isinstance(device, Device):
            raise TypeMismatch(
                f"an engine is loaded on a Device, got {type(device).__name__}.",
                hint="engine.load(), or engine.load(IPUModel().create_device())",
            )
        if device is not None and (device.target.n_ipus, device.target.chip.arch) != (
            n_ipus,
            mine.chip.arch,
        ):
            raise GraphReplicationError(
                f"the program was compiled for {n_ipus} IPUs of {mine.chip.arch}, the device has "
                f"{device.target.n_ipus} of {device.target.chip.arch}.",
                hint="load it on the device its graph was made for",
            )

    def _update_stops(self) -> None:
        """Which compute steps go through Python: those to be checked, or without a kernel."""
        loaded = self.loaded
        is_unready = ~loaded.clock.counted_steps.is_ready
        self._stops[:] = self._is_execute & (loaded.checks_steps | is_unready)

    def run(self, program: int | str = 0) -> None:
        """Run a program, by index or name, to its end."""
        entry = self._entry(program)
        with span(POPLAR, "Engine.run"), vertex_prints_to(self._vertex_stream):
            if self._meter is not None:
                with self._meter.metered(self.clock):
                    self._run_entry(entry)
            else:
                self._run_entry(entry)
            if self._auto_report is not None:
                self._auto_report.after_run()

    def _run_entry(self, entry: int) -> None:
        with self.clock.run(self.executable.entries.index(entry)):
            self._run_from(entry)

    def close(self) -> None:
        """Write the report that options ask for, if something ran since it was last written."""
        if self._auto_report is not None:
            self._auto_report.finish()

    def _run_from(self, entry: int) -> None:
        """Run from an instruction to the end of its program."""
        from tremula.runtime.interpreter.loop import interpret  # imports Numba

        machine = self.loaded.machine
        machine.use_threads()
        registers = np.zeros(record.N_REGISTERS, np.int64)
        registers[record.PC] = entry
        self._registers = registers
        counters = np.zeros(max(1, self.executable.n_loop_slots), np.int64)
        call_stack = np.zeros(record.MAX_CALL_DEPTH, np.int64)
        budget = 256
        while True:
            started = time.perf_counter()
            machine.set_run(registers, counters, call_stack)
            machine.set_clock(self.loaded.clock, self._stops)
            reason = interpret(machine.address, budget)
            self.clock.recorder.add(machine.recorded())
            if reason == record.DONE:
                return
            if reason == record.BUDGET_SPENT:
                if self._meter is not None:
                    self._meter.lease.check()
                quick = time.perf_counter() - started < SECONDS_BETWEEN_RETURNS / 2
                budget = min(budget * 2, 1 << 40) if quick else max(1, budget // 2)
            elif reason == record.LOG_FULL:
                continue
            elif reason == record.AT_STEP:
                registers[record.PC] += self._run_step(int(registers[record.PC]))
            else:
                raise self._failure(int(reason), int(registers[record.PC]))

    def load_and_run(self, device: Device | None = None, program: int | str = 0) -> None:
        """Load, and run a program."""
        self.load(device).run(program)

    def stop(self) -> None:
        """End every `Loop` of the program that runs now, from another thread or a callback."""
        if self._registers is not None:
            self._registers[record.STOP] = 1

    def _run_step(self, pc: int) -> int:
        """Run the step at an instruction, for which the interpreter came back.

        Returns by how many instructions to go on: 0 if the interpreter can run the step itself now.
        """
        number, loaded = int(self.executable.step_of[pc]), self.loaded
        step = self.executable.steps[number]
        if step.kind is not StepKind.EXECUTE:
            loaded.clock.advance(number)
            run_host_step(loaded, step)
            self._update_stops()
        elif loaded.checks_steps:
            from tremula.runtime.strict import run_checked  # imports Numba

            run_checked(loaded, number, pc)
            loaded.clock.record_counted(number)
        else:
            has_modes = loaded.machine_state.rounding_mode != 0
            loaded.clock.counted_steps.prepare(number, has_modes=has_modes)
            self._update_stops()
            return 0
        return 1

    def _entry(self, program: int | str) -> int:
        names, entries = self.executable.names, self.executable.entries
        _ = self.loaded  # or an error
        if isinstance(program, str):
            if program not in names:
                raise ControlProgramError(f"no program {program!r}.", hint=suggest(program, names))
            return entries[names.index(program)]
        if not 0 <= program < len(entries):
            raise ControlProgramError(
                f"program {program} does not exist: there are {len(entries)}.",
                hint=f"use 0 to {len(entries) - 1}",
            )
        return entries[program]

    def _failure(self, reason: int, pc: int) -> RuntimeFailure | GraphReplicationError:
        number = int(self.executable.step_of[pc])
        if reason == record.DIVERGED:
            step = self.executable.steps[number]
            return GraphReplicationError(
                f"{step.name}: the replicas disagree about the predicate.\n  at {step.source}",
                hint="reduce the predicate across replicas first",
            )
        return RuntimeFailure(
            f"functions call each other more than {record.MAX_CALL_DEPTH} deep.",
            hint="use fewer nested functions",
        )

    # -- data --------------------------------------------------------------------------------------

    @property
    def loaded(self) -> LoadedProgram:
        """Is it ready to run?"""
        if self._loaded is None:
            raise TensorIoStateError(
                "the engine is not loaded.", hint="call engine.load() before run, read or write"
            )
        return self._loaded

    @property
    def clock(self) -> Clock:
        """The modelled clock of all chips."""
        return self.loaded.clock

    @property
    def print_stream(self) -> IO[str]:
        """Where PrintTensor prints: stderr, unless it is set."""
        return self.host.print_stream

    @print_stream.setter
    def print_stream(self, stream: IO[str]) -> None:
        self.host.print_stream = stream

    def set_print_tensor_stream(self, stream: IO[str]) -> None:
        """Where `PrintTensor` prints from now on."""
        self.print_stream = stream

    def set_print_stream(self, stream: IO[str]) -> None:
        """Where C++ codelets print from now on, instead of the process's standard output."""
        self._vertex_stream = stream

    def write_tensor(self, handle: str, data: object, replica: int | None = None) -> None:
        """Write a tensor that `create_host_write` named; to all replicas unless one is named."""
        view = self.host.written(handle)
        values = host_array(view.type_name, view.n_elems, data, f"host write {handle!r}")
        with span(POPLAR, "Engine.write_tensor", tensor=handle):
            for r in self._chosen_replicas(replica):
                self.loaded.storage.write(view, values, r)

    def read_tensor(self, handle: str, replica: int = 0) -> np.ndarray:
        """A copy of a tensor that `create_host_read` named; 8-bit floats come as float32."""
        view = self.host.read(handle)
        (replica,) = self._chosen_replicas(replica)
        with span(POPLAR, "Engine.read_tensor", tensor=handle):
            return self.loaded.storage.read_values(view, replica)

    def connect_stream(
        self,
        handle: str,
        data: Address,
        replica: Address | None = None,
        *,
        end: Address | None = None,
    ) -> None:
        """Let a stream take its chunks from (or put them into) an array, over and over.

        In Poplar's form, `connect_stream(handle, begin, end)`, both are addresses, or arrays whose
        first element is meant: `connect_stream(handle, data, data[n:])`.
        """
        stream = self.host.stream(handle)
        if end is None and replica is not None and _is_end(data, replica):
            end, replica = replica, None
        if end is not None:
            data = memory_between(handle, data, end, as_type(stream.type_name).dtype)
        assert isinstance(replica, int | None), "an end was taken above"
        self.host.connect(handle, RingPort(stream, data), self._chosen_replicas(replica))

    def connect_stream_to_callback(
        self,
        handle: str,
        callback: StreamCallback | Callable[[np.ndarray], object] | int,
        replica: StreamCallback | Callable[[np.ndarray], object] | int | None = None,
    ) -> None:
        """Let a stream call host code for each chunk; see StreamCallback.

        As in Poplar, the index of a replica may also come before the callback.
        """
        if isinstance(callback, int) and not isinstance(replica, int | None):
            callback, replica = replica, callback
        assert isinstance(replica, int | None), f"a replica is an index, got {replica!r}"
        stream = self.host.stream(handle)
        use_prefetch = stream.is_host_to_device and self.options.flag("exchange.enablePrefetch")
        port = CallbackPort(stream, callback, use_prefetch)
        self.host.connect(handle, port, self._chosen_replicas(replica))

    def connect_host_function(self, handle: str, function: Callable) -> None:
        """Let programs call `function(inputs, outputs)`: lists of arrays; fill the outputs."""
        self.host.connect_function(handle, function)

    def list_streams(self) -> list[str]:
        """Handles of all streams."""
        return sorted(self.executable.host.streams)

    def copy_to_remote_buffer(
        self, data: object, handle: str, row: int = 0, replica: int = 0
    ) -> None:
        """Write one row of a remote buffer."""
        buffer = self.host.buffer(handle)
        values = host_array(buffer.type_name, buffer.n_elements, data, f"remote buffer {handle!r}")
        self._remote_row(handle, row, replica)[:] = values

    def copy_from_remote_buffer(self, handle: str, row: int = 0, replica: int = 0) -> np.ndarray:
        """A copy of one row of a remote buffer."""
        return self._remote_row(handle, row, replica).copy()

    def _remote_row(self, handle: str, row: int, replica: int) -> np.ndarray:
        (replica,) = self._chosen_replicas(replica)
        self.host.buffer(handle)
        memory = self.loaded.remote_memory(handle, replica)
        if not 0 <= row < len(memory):
            raise StreamConnectionError(
                f"remote buffer {handle!r} has {len(memory)} rows, row {row} does not exist.",
                hint=f"use 0 to {len(memory) - 1}",
            )
        return memory[row]

    def _chosen_replicas(self, replica: int | None) -> range:
        """All replicas, or the one that was named."""
        if replica is None:
            return range(self.n_replicas)
        if not 0 <= replica < self.n_replicas:
            raise GraphReplicationError(
                f"replica {replica} does not exist: the graph has {self.n_replicas}.",
                hint=f"use 0 to {self.n_replicas - 1}",
            )
        return range(replica, replica + 1)

    # -- reports -----------------------------------------------------------------------------------

    def report(self) -> ProgramReport:
        """Columns of everything known about the program: memory, cycles, steps, tiles."""
        ran = None if self._loaded is None else self._loaded.clock.execution()
        return make_report(self.executable, ran)

    def get_report(self) -> Any:  # noqa: ANN401 - a tremula.vision.pva.Report, loaded on request
        """The report as pva's object model, without a file: `get_report().execution.steps`."""
        return self.report().pva()

    def enable_execution_profiling(self) -> None:
        """Let reports count what runs from now on, which they do unless it was disabled."""
        self.clock.enable_profiling()

    def disable_execution_profiling(self) -> None:
        """Leave what runs from now on out of reports. The clock and `cycle_count` continue."""
        self.clock.disable_profiling()

    def reset_execution_profile(self) -> None:
        """Leave what ran so far out of reports."""
        self.clock.reset_profiling()

    reset_execution_profiling = reset_execution_profile

    def print_profile_summary(
        self,
        stream: IO[str] | None = None,
        options: Mapping[str, object] | None = None,
        *,
        show_execution_steps: bool = False,
    ) -> None:
        """Print the report as text.

        Options are Poplar's: `showExecutionSteps` prints every step, `showVarStorage` the memory of
        the fullest tiles.
        """
        chosen = {"showExecutionSteps": show_execution_steps, "showVarStorage": False}
        for name, value in (options or {}).items():
            if name not in chosen:
                raise InvalidOption(f"no option {name!r}.", hint=suggest(name, chosen))
            chosen[name] = str(value).lower() in {"true", "1"}
        text = profile_summary(
            self.report(),
            show_execution_steps=chosen["showExecutionSteps"],
            show_var_storage=chosen["showVarStorage"],
        )
        print(text, file=stream or sys.stdout)


def _is_end(begin: object, value: object) -> bool:
    """Whether a number or array after `begin` ends the memory; an array with a number has none."""
    return isinstance(value, np.ndarray | c_void_p) or not isinstance(begin, np.ndarray)


add_cpp_spellings(Engine)
