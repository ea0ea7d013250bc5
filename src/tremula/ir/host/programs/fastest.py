"""Host execution on a GPU by the fastest backend, which is measured while the model already runs.

Calls begin with ATen's kernels in a CUDA graph. A thread compiles the same step with Inductor; when
it is done, one call is run by both. If they agree within rounding, the next calls are timed in
turn, and the faster one stays. Both draw the same random numbers. The choice is remembered: the
next process that runs the same step begins with it.
"""

import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from tremula.ir.host.compile_isolation import isolate_compiling_thread
from tremula.ir.host.compiled.pool import PoolUse, running_pool
from tremula.ir.host.compiled.programs import (
    ProgramRecord,
    expect_stored,
    mask_of,
    store_program,
    stored_program,
)
from tremula.ir.host.compiled.store import forget_record
from tremula.ir.host.passes.random_masks import (
    can_draw_first,
    draw_first,
    is_mask,
    probabilities,
    without_draws,
)
from tremula.ir.host.programs.cuda_graph import (
    CudaGraphProgram,
    Give,
    InductorCudaGraphProgram,
    MicroBatches,
    restore,
    snapshot,
)
from tremula.ir.host.programs.known_choices import (
    choice_key,
    forget_choice,
    known_choice,
    program_key,
    remember_choice,
    start_key_of,
)
from tremula.ir.host.programs.program import DeviceState, MicroBatch
from tremula.ir.host.start_phases import start_phase
from tremula.ir.nodes import HALF_TYPES
from tremula.ir.optim.rule import UpdateRule
from tremula.ir.passes import apply
from tremula.ir.step import OUTPUT, CapturedStep
from tremula.ir.torch_generators import random_state, set_random_state

_N_TIMED = 3  # calls of each program; the shortest counts, so that one disturbed call does not
# Seconds of calls before a compilation is started. It takes Inductor tens of seconds, so shorter
# scripts would not gain by it.
_PATIENCE_S = 1.0
# Seconds for which the compiling thread may hold Python's lock (5 ms by default): an eighth of a
# call of 0.8 ms, the shortest that was measured meanwhile (docs/gpu.md, "Which backend").
_SWITCH_S = 1e-4
# Of the norm of a result. Operands of TF32 products are rounded by up to 2**-11, and gradients of
# SchNet differ by 8e-4 for it (docs/gpu.md, "Precision"); results may add up some 25 such errors.
# In halves ATen rounds after each operation, by up to 2**-9 in bfloat16, Inductor after several.
_MAX_ERROR, _MAX_ERROR_OF_HALVES = 2e-2, 5e-2
# How much rounding changes a result depends on the model: when it has learned a batch, gradients
# are mostly rounding. So ATen's program runs again with weights that are rounded otherwise, and
# programs may differ by this many times what that changes, if that is more than the errors above.
_N_ROUNDINGS = 2.0
_LARGEST_ERROR = 0.9  # tensors of one norm that have nothing in common differ by 1.4
_TF32_EPS = 2.0**-10
_LEAST_SHARE = 0.1  # of the others' size: a smaller gradient may be all rounding


_EARLIER = "an earlier process measured it"
_log = logging.getLogger("tremula.gpu")


class _DrawingFirst(CudaGraphProgram):
    """ATen's kernels; masks are drawn before anything else."""

    def compile(self, part: CapturedStep) -> MicroBatch:
        first = partial(draw_first, device=self.device)
        return super().compile(apply(part, (("draw first", first),), "host"))


class _Rival(InductorCudaGraphProgram):
    """Inductor's kernels, with masks that PyTorch draws."""

    def compile(self, part: CapturedStep) -> MicroBatch:
        first = partial(draw_first, device=self.device)
        part, drawing = without_draws(apply(part, (("draw first", first),), "host"))
        self._compiled = self.compiled(part)
        self._masks = [node.meta["val"] for node in part.placeholders() if is_mask(node)]
        self._probabilities = probabilities(drawing.graph)

        def run(*inputs: Tensor) -> list[Tensor]:
            with torch.no_grad():
                return self._compiled(*inputs, *drawing())

        return run

    def compile_for(self, state: DeviceState, inputs: MicroBatches) -> None:
        """Compile for the first micro-batch, without running it."""
        masks = [torch.empty(m.shape, dtype=m.dtype, device=self.device) for m in self._masks]
        self._compiled.prepare([*self.arguments(state, 0, inputs[0]), *masks])

    def record(self) -> ProgramRecord | None:
        """What another process needs to run this program; None if it cannot be stored."""
        return self._compiled.record(tuple(map(mask_of, self._masks, self._probabilities)))


class FastestProgram(_DrawingFirst):
    """Runs ATen's kernels until Inductor's are known to be faster."""

    compiles_late = True  # not at all if an earlier process has stored a faster program

    def __init__(self, step: CapturedStep, *, pool_use: PoolUse | None = None, **options):
        super().__init__(step, **options)
        self._pool_use = pool_use  # of the process that was started for this step
        self._make_rival = partial(_Rival, step, **options)
        self._is_stored = False  # whether it runs Inductor's kernels from an earlier process
        self._rival: _Rival | None = None
        self._thread: threading.Thread | None = None
        self._began: float | None = None  # when the first call ended
        self._times: dict[CudaGraphProgram, list[float]] = {}
        self._chosen: CudaGraphProgram | None = None
        self._reason = ""  # for the choice
        self._key = choice_key(self.step, self.device, self.repetition)
        self._program_key = program_key(self.step, self.device, self.repetition)
        self._start_key = start_key_of(self.step)
        if not can_draw_first(self.step):  # other draws depend on their order
            self._choose_only_one("the model draws random numbers other than masks")
        elif self.repetition.n_processes > 1:
            self._choose_only_one("several processes must choose the same")

    @property
    def _computes_in_halves(self) -> bool:
        values = (node.meta.get("val") for node in self.step.graph.nodes)
        return any(isinstance(v, Tensor) and v.dtype in HALF_TYPES for v in values)

    @property
    def _rounding(self) -> float:
        """By how much operands of products are rounded, relative to them."""
        if self._computes_in_halves:
            return torch.finfo(torch.bfloat16).eps
        is_full = torch.get_float32_matmul_precision() == "highest"
        is_full = is_full and not torch.backends.cudnn.allow_tf32
        return torch.finfo(torch.float32).eps if is_full else _TF32_EPS

    @property
    def is_compiling(self) -> bool:
        """Whether calls do not compare both programs yet, since Inductor's is not compiled."""
        return self._chosen is None and self._rival is None

    @property
    def backend(self) -> str:
        """The backend that runs the calls; empty while that is not decided."""
        if self._chosen is None:
            return ""
        is_aten = self._chosen is self and not self._is_stored
        return "cuda-graph" if is_aten else "inductor-cuda-graph"

    @property
    def reason(self) -> str:
        """Why that backend was chosen; empty while it is not decided."""
        return self._reason

    def run(self, state: DeviceState, inputs: MicroBatches, give: Give) -> None:
        if self._chosen is None and self._began is None:
            self._choose_as_before(state, inputs)
            if self._chosen is not None:
                self._leave_pool()
        if self._chosen is not None:
            self._run_by(self._chosen, state, inputs, give)
        elif self._rival is None:
            self._compile_early(state, inputs)
            self._run_by(self, state, inputs, give)
            self._compile_meanwhile(state, inputs)
        elif not self._times:
            self._run_both(self._rival, state, inputs, give)
        else:
            self._run_timed(state, inputs, give)

    def _choose_as_before(self, state: DeviceState, inputs: MicroBatches) -> None:
        """Begin with what an earlier process chose for this step, if that is known."""
        if self._load_stored(state, inputs):
            return
        known = known_choice(self._key)
        if known == "cuda-graph":
            self._choose_only_one(_EARLIER)
        elif known is not None:
            try:
                with start_phase("passes for Inductor"):
                    rival = self._make_rival()
                with start_phase("compile with Inductor"):
                    rival.compile_for(state, _on(self.device, inputs))
                with start_phase("record Inductor's CUDA graph"):
                    rival.capture(state, inputs)
            except Exception as error:  # noqa: BLE001 - whatever it is, the choice is made again
                _log.info("what an earlier process chose does not work here: %s", error)
                forget_choice(self._key)
            else:
                self._chosen, self._reason = rival, _EARLIER
                self._rival = rival

    def _load_stored(self, state: DeviceState, inputs: MicroBatches) -> bool:
        """Begin with the program that an earlier process chose and stored, if there is one."""
        with start_phase("look for a stored program"):
            stored = stored_program(self._program_key, self.device)
        if stored is None:
            return False
        if self.output_hook is not None:
            positions = [position for position, _ in self.step.results_of_kind(OUTPUT)]
            stored.give_outputs(self.output_hook, positions)
        self.micro = stored
        try:
            with start_phase("record the stored program's CUDA graph"):
                self.capture(state, inputs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the step is compiled again
            forget_record(self._program_key, str(error))
            del self.micro
            self.forget()
            return False
        self._chosen, self._is_stored, self._reason = self, True, _EARLIER
        return True

    def _run_by(
        self, program: CudaGraphProgram, state: DeviceState, inputs: MicroBatches, give: Give
    ) -> None:
        run = super().run if program is self else program.run
        run(state, inputs, give)

    # -- the other program -----------------------------------------------------------------------

    def _compile_early(self, state: DeviceState, inputs: MicroBatches) -> None:
        """Let the compiling process begin, if there is one, before the first call runs."""
        pool = running_pool()
        if pool is None or self._began is not None:
            return
        self._compile_meanwhile(state, inputs)
        while self._thread is not None and self._thread.is_alive() and not pool.sent.wait(0.02):
            pass  # both threads would trace, which is slower than one after the other

    def _compile_meanwhile(self, state: DeviceState, inputs: MicroBatches) -> None:
        """Start the compiling thread once; it reads no values, so that calls can continue."""
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        patience_s = _PATIENCE_S if running_pool() is None else 0.0
        if self._thread is not None or now - self._began < patience_s:
            return
        inputs = _on(self.device, inputs)
        torch.cuda.current_stream(self.device).synchronize()
        self._thread = threading.Thread(
            target=self._compile_rival, args=(state, inputs), name="tremula-compile"
        )
        self._thread.start()

    def _compile_rival(self, state: DeviceState, inputs: MicroBatches) -> None:
        try:
            isolated = isolate_compiling_thread()
            with torch.cuda.device(self.device), _frequent_switches(), isolated:
                with start_phase("passes for Inductor"):
                    rival = self._make_rival()
                # Running would draw from the generator that calls draw from, and its kernels, which
                # are timed in their first run, would wait for those of the calls.
                with start_phase("compile with Inductor"):
                    rival.compile_for(state, inputs)
            self._leave_pool()
            self._rival = rival
        except Exception as error:  # noqa: BLE001 - whatever the compiler raises, calls continue
            if threading.main_thread().is_alive():  # else the script has ended meanwhile
                warnings.warn(f"Inductor does not compile this model: {error}", stacklevel=1)
            self._choose_only_one(f"Inductor does not compile it: {error}")

    # -- which is faster -------------------------------------------------------------------------

    def _run_both(
        self, rival: "_Rival", state: DeviceState, inputs: MicroBatches, give: Give
    ) -> None:
        """One call by both programs from the same state; the results of ATen's are returned."""
        saved, drawn = snapshot(state), random_state(self.device)
        try:
            other = self._run_rival(rival, state, inputs)
        except Exception as error:  # noqa: BLE001 - whatever its kernels raise, calls continue
            restore(state, saved)
            set_random_state(self.device, drawn)
            line = (str(error).strip().splitlines() or [""])[-1]
            self._choose(self, f"Inductor's program fails: {type(error).__name__}: {line}")
            self._run_by(self, state, inputs, give)
            return
        restore(state, saved)
        rounded = self._run_rounded(state, inputs)
        restore(state, saved)
        set_random_state(self.device, drawn)
        first: list[Tensor] = []

        def give_both(number: int, outputs: list[Tensor]) -> None:
            first.extend(self._copied(outputs))
            give(number, outputs)

        self._run_by(self, state, inputs, give_both)
        mine = [first, *_kinds_of(state, self.rule)]
        least = _MAX_ERROR_OF_HALVES if self._computes_in_halves else _MAX_ERROR
        most = largest_errors(mine, rounded, least)
        if agree(mine, other, most):
            self._times = {self: [], rival: []}
        else:
            errors = [round(error, 4) for error in differences(mine, other).tolist()]
            # Another run may agree: only what was measured is remembered.
            self._choose(self, f"Inductor's results differ by {errors}, allowed {most.tolist()}")

    def _run_rival(
        self, rival: "_Rival", state: DeviceState, inputs: MicroBatches
    ) -> list[list[Tensor]]:
        """What a call of Inductor's program leaves; changes the state."""
        drawn = random_state(self.device)
        with start_phase("record Inductor's CUDA graph"):
            rival.capture(state, inputs)
        set_random_state(self.device, drawn)
        result: list[Tensor] = []
        rival.run(state, inputs, lambda _number, outputs: result.extend(self._copied(outputs)))
        return [result, *_kinds_of(_copy_of(state), self.rule)]

    def _run_rounded(self, state: DeviceState, inputs: MicroBatches) -> list[list[Tensor]]:
        """What a call leaves if weights differ by a rounding of products; changes the state."""
        drawn = random_state(self.device)
        for weight in state.parameters:
            if weight.is_floating_point():
                sign = torch.randint_like(weight, 2) * 2 - 1
                weight.mul_(1 + sign * self._rounding)
        set_random_state(self.device, drawn)
        outputs: list[Tensor] = []
        self._run_by(self, state, inputs, lambda _n, some: outputs.extend(self._copied(some)))
        return [outputs, *_kinds_of(_copy_of(state), self.rule)]

    def _copied(self, outputs: list[Tensor]) -> list[Tensor]:
        """Outputs that the next run does not write over, beside the state."""
        return [tensor.to(self.device, copy=True) for tensor in outputs]

    def _run_timed(self, state: DeviceState, inputs: MicroBatches, give: Give) -> None:
        program = min(self._times, key=lambda p: len(self._times[p]))
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if program.must_capture(state):
            program.capture(state, inputs)
        program.copy_in(inputs)
        begin.record()
        program.replay()
        end.record()
        program.hand_out(inputs, give)
        end.synchronize()
        self._times[program].append(begin.elapsed_time(end))
        if all(len(times) == _N_TIMED for times in self._times.values()):
            best = {program: min(times) for program, times in self._times.items()}
            named = {"ATen" if p is self else "Inductor": f"{ms:.2f} ms" for p, ms in best.items()}
            reason = ", ".join(f"{name} {ms}" for name, ms in named.items())
            self._choose(min(best, key=best.__getitem__), reason)
            remember_choice(self._key, self.backend)
        if isinstance(program, _Rival):
            self._store(program)

    def _choose_only_one(self, reason: str) -> None:
        """ATen's program, where the other one cannot be compared with it."""
        self._chosen, self._reason = self, reason
        self._leave_pool()

    def _leave_pool(self) -> None:
        """This program needs the compiling process no more."""
        if self._pool_use is not None:
            self._pool_use.end()

    def _choose(self, program: CudaGraphProgram, reason: str) -> None:
        """Keep one program; free the memory of the other."""
        self._chosen, self._reason = program, reason
        self._times = {}
        _log.info("%s runs the model: %s", self.backend, reason)
        if program is self:
            self._rival = None
        else:
            self.forget()

    def _store(self, rival: _Rival) -> None:
        """For the next process; whatever prevents it, calls continue."""
        try:
            with start_phase("store the program"):
                record = rival.record()
                if record is not None:
                    store_program(self._program_key, record)
                    expect_stored(self._start_key)
        except Exception as error:  # noqa: BLE001
            _log.info("the program is not stored: %s: %s", type(error).__name__, error)


@contextmanager
def _frequent_switches() -> Iterator[None]:
    """Let other threads get Python's lock soon when they wait for it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _on(device: torch.device, inputs: MicroBatches) -> MicroBatches:
    return [[tensor.to(device, copy=True) for tensor in micro] for micro in inputs]


def _copy_of(state: DeviceState) -> DeviceState:
    return DeviceState(
        [t.clone() for t in state.parameters],
        [[t.clone() for t in replica] for replica in state.buffers],
        [t.clone() for t in state.states],
        [t.clone() for t in state.hyper_tensors],
        list(state.hyper_floats),
    )


def _kinds_of(state: DeviceState, rule: UpdateRule | None) -> list[list[Tensor]]:
    """Tensors of a state whose sizes can be compared: buffers, and each kind of optimiser state.

    Weights are one tensor. Adam moves a weight whose gradient is all rounding by as much as any
    other, so single weights may differ; what their gradients were, their states show.
    """
    weights = [w.detach().float().flatten() for w in state.parameters if w.is_floating_point()]
    states: dict[str, list[Tensor]] = {}
    for kind, tensor in zip(rule.state_kinds() if rule else (), state.states, strict=True):
        states.setdefault(kind, []).append(tensor)
    buffers = [buffer for replica in state.buffers for buffer in replica]
    joined = [torch.cat(weights)] if weights else []
    return [joined, buffers, *states.values(), state.hyper_tensors]


def largest_errors(mine: list[list[Tensor]], rounded: list[list[Tensor]], least: float) -> Tensor:
    """How much each kind of results may differ, from what another rounding of weights changes."""
    return (_N_ROUNDINGS * differences(mine, rounded)).clamp(least, _LARGEST_ERROR)


def agree(first: list[list[Tensor]], second: list[list[Tensor]], most: float | Tensor) -> bool:
    """Whether results of two programs agree, each kind within its limit; waits for the GPU once."""
    return bool((differences(first, second) <= most).all())


def differences(first: list[list[Tensor]], second: list[list[Tensor]]) -> Tensor:
    """The largest difference of each kind of results of two programs.

    Each list has tensors of one kind. The difference of a tensor is relative to its norm, and for
    one that is small compared to the others of its kind to a share of theirs.
    """
    device = next((tensor.device for kind in first for tensor in kind), None)
    result: list[Tensor] = []
    for kind, other in zip(first, second, strict=True):
        pairs = [
            (a.float(), b.float())
            for a, b in zip(kind, other, strict=True)
            if a.is_floating_point() and a.numel()
        ]
        none = torch.zeros((), device=device)
        result.append(torch.stack(_errors(pairs)).max() if pairs else none)
    return torch.stack(result)


def _errors(pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The difference of each pair; infinite where only one of both is NaN."""
    norms = [torch.linalg.vector_norm(torch.nan_to_num(a)) for a, _ in pairs]
    n_elements = [a.numel() for a, _ in pairs]
    mean_square = torch.stack(norms).square().sum() / sum(n_elements)
    errors = []
    for (a, b), norm, n in zip(pairs, norms, n_elements, strict=True):
        differs = torch.where(a.isfinite() | b.isfinite(), a - b, 0.0)
        least = _LEAST_SHARE * torch.sqrt(mean_square * n)
        size = torch.maximum(norm, least).clamp_min(1e-6)
        errors.append(torch.nan_to_num(torch.linalg.vector_norm(differs) / size, nan=float("inf")))
    return errors
