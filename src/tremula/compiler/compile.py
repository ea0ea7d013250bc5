"""compile_graph: the named passes from a graph to an executable, one after another."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.base.options import Options, parse_options
from tremula.compiler.content_hash import content_hash
from tremula.compiler.file.codec import record
from tremula.compiler.file.executable import Executable
from tremula.compiler.lower.lower import Programs, lower
from tremula.compiler.passes.cost import StepCosts, cost_steps
from tremula.compiler.passes.emit import emit
from tremula.compiler.passes.exchange import StepExchanges, exchanges_of
from tremula.compiler.passes.liveness import Liveness, analyse_liveness
from tremula.compiler.passes.memory import TileMemory, memory_of, out_of_memory_error
from tremula.compiler.passes.verify import verify
from tremula.compiler.program_ir import LoweredPrograms
from tremula.compiler.report.report import make_report
from tremula.poplar.graph import Graph

Progress = Callable[[int, int], None]


class OutOfMemoryWarning(UserWarning):
    """A tile is out of memory, and the options say to go on."""


@record
@dataclass(frozen=True, slots=True)
class Analysis:
    """What the passes found out; every figure of a report comes from here."""

    exchanges: StepExchanges
    liveness: Liveness
    memory: TileMemory
    costs: StepCosts


@dataclass(frozen=True, slots=True)
class Compilation:
    """What is known so far; each pass returns one with more in it."""

    programs: LoweredPrograms
    options: Options
    exchanges: StepExchanges | None = None
    liveness: Liveness | None = None
    memory: TileMemory | None = None
    costs: StepCosts | None = None
    executable: Executable | None = None


def _verify(state: Compilation) -> Compilation:
    verify(state.programs)
    return state


def _plan_exchange(state: Compilation) -> Compilation:
    return replace(state, exchanges=exchanges_of(state.programs))


def _find_liveness(state: Compilation) -> Compilation:
    return replace(state, liveness=analyse_liveness(state.programs))


def _place_memory(state: Compilation) -> Compilation:
    assert state.liveness is not None, "passes run in order"
    assert state.exchanges is not None, "passes run in order"
    return replace(state, memory=memory_of(state.programs, state.liveness, state.exchanges))


def _cost_steps(state: Compilation) -> Compilation:
    assert state.exchanges is not None, "passes run in order"
    return replace(state, costs=cost_steps(state.programs, state.exchanges))


def _emit(state: Compilation) -> Compilation:
    found = (state.exchanges, state.liveness, state.memory, state.costs)
    assert all(part is not None for part in found), "passes run in order"
    analysis = Analysis(*found)  # pyright: ignore[reportArgumentType] - none of them is None
    return replace(state, executable=emit(state.programs, analysis, state.options.to_dict()))


# In this order. Each takes what is known and returns it with its own findings added.
PASSES: tuple[tuple[str, Callable[[Compilation], Compilation]], ...] = (
    ("verify", _verify),
    ("exchange", _plan_exchange),
    ("liveness", _find_liveness),
    ("placement", _place_memory),
    ("cost", _cost_steps),
    ("emit", _emit),
)


def compile_graph(
    graph: Graph,
    programs: Programs,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Executable:
    """Compile programs of a graph. `progress(step, total)` is called after each pass.

    With the option tremula.cache set to a directory, an executable compiled before is read from it.
    """
    parsed = parse_options(options)
    total = len(PASSES) + 1
    lowered = lower(graph, programs)
    if progress is not None:
        progress(1, total)
    cached = _cache_path(lowered, parsed)
    executable = _from_cache(cached)
    if executable is None:
        state = Compilation(lowered, parsed)
        for done, (_, run_pass) in enumerate(PASSES, start=2):
            state = run_pass(state)
            if progress is not None:
                progress(done, total)
        executable = state.executable
        assert executable is not None, "the last pass makes it"
        if cached is not None:
            executable.save(str(cached))
    elif progress is not None:
        progress(total, total)
    check_memory(executable, parsed)
    return executable


def check_memory(executable: Executable, options: Options) -> None:
    """Raise, or with debug.allowOutOfMemory warn, if a tile is out of memory."""
    analysis: Analysis = executable.analysis  # pyright: ignore[reportAssignmentType]
    chip = executable.target.chip
    error = out_of_memory_error(analysis.memory, analysis.liveness, executable.variables, chip)
    if error is None:
        return
    if options.flag("debug.allowOutOfMemory"):
        warnings.warn(str(error), OutOfMemoryWarning, stacklevel=3)
        return
    error.report, error.executable = make_report(executable), executable
    raise error


def _cache_path(programs: LoweredPrograms, options: Options) -> Path | None:
    directory = options.text("tremula.cache")
    return (
        Path(os.path.expanduser(directory)) / f"{content_hash(programs, options)}.tremula"
        if directory
        else None
    )


def _from_cache(path: Path | None) -> Executable | None:
    """An executable compiled earlier. A damaged file counts as none and is replaced."""
    if path is None or not path.exists():
        return None
    try:
        return Executable.load(str(path))
    except FileLoadError as error:
        warnings.warn(f"compiling again: {error}", stacklevel=3)
        return None
