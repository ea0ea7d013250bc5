"""compile_graph: the named passes from a graph to an executable, one after another."""

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.base.options import OptionValues, parse_options
from tremula.base.passes import dump_passes, run_passes
from tremula.base.processes import small_pages
from tremula.compiler.executable.content_hash import content_hash
from tremula.compiler.executable.emit import emit
from tremula.compiler.executable.executable import Analysis, Executable
from tremula.compiler.lower.lower import Programs, lower
from tremula.compiler.passes.cost import StepCosts, cost_steps
from tremula.compiler.passes.exchange import StepExchanges, exchanges_of
from tremula.compiler.passes.liveness import LiveRanges, analyse_liveness
from tremula.compiler.passes.memory import TileMemoryTable, memory_of, out_of_memory_error
from tremula.compiler.passes.overlap import hide_transfers
from tremula.compiler.passes.verify import verify
from tremula.compiler.program_ir import LoweredPrograms
from tremula.compiler.report.report import make_report
from tremula.compiler.text import compilation_text
from tremula.poplar.graph import Graph

Progress = Callable[[int, int], None]


class OutOfMemoryWarning(UserWarning):
    """A tile is out of memory, and the options say to continue."""


@dataclass(frozen=True, slots=True)
class CompilerState:
    """What is known so far; each pass returns one with more in it."""

    graph: Graph
    sources: Programs
    options: OptionValues
    programs: LoweredPrograms | None = None
    exchanges: StepExchanges | None = None
    liveness: LiveRanges | None = None
    costs: StepCosts | None = None
    memory: TileMemoryTable | None = None
    executable: Executable | None = None

    @property
    def lowered(self) -> LoweredPrograms:
        assert self.programs is not None, "lowering is the first pass"
        return self.programs

    def text(self) -> str:
        return compilation_text(
            self.lowered, self.exchanges, self.liveness, self.costs, self.memory, self.executable
        )


def _lower(state: CompilerState) -> CompilerState:
    return replace(state, programs=lower(state.graph, state.sources))


def _verify(state: CompilerState) -> CompilerState:
    verify(state.lowered)
    return state


def _plan_exchange(state: CompilerState) -> CompilerState:
    return replace(state, exchanges=exchanges_of(state.lowered))


def _find_liveness(state: CompilerState) -> CompilerState:
    return replace(state, liveness=analyse_liveness(state.lowered))


def _cost_steps(state: CompilerState) -> CompilerState:
    assert state.exchanges is not None, "passes run in order"
    programs, exchanges = state.lowered, state.exchanges
    costs = cost_steps(programs, exchanges)
    costs = hide_transfers(costs, programs.code, programs.step_of, programs.steps, exchanges)
    return replace(state, costs=costs)


def _place_memory(state: CompilerState) -> CompilerState:
    assert state.liveness is not None, "passes run in order"
    assert state.exchanges is not None, "passes run in order"
    assert state.costs is not None, "passes run in order"
    result = memory_of(state.lowered, state.liveness, state.exchanges, state.costs.takes_part)
    return replace(state, memory=result)


def _emit(state: CompilerState) -> CompilerState:
    result = (state.exchanges, state.liveness, state.memory, state.costs)
    assert all(part is not None for part in result), "passes run in order"
    analysis = Analysis(*result)  # pyright: ignore[reportArgumentType] - none of them is None
    return replace(state, executable=emit(state.lowered, analysis, state.options.to_dict()))


# In this order. Each takes what is known and returns it with its own findings added.
PASSES: tuple[tuple[str, Callable[[CompilerState], CompilerState]], ...] = (
    ("lower", _lower),
    ("verify", _verify),
    ("exchange", _plan_exchange),
    ("liveness", _find_liveness),
    ("cost", _cost_steps),
    ("placement", _place_memory),
    ("emit", _emit),
)
_N_BEFORE_CACHE = 1  # what was lowered decides which executable of the cache it is


def compile_graph(
    graph: Graph,
    programs: Programs,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Executable:
    """Compile programs of a graph. `progress(step, total)` is called after each pass.

    With the option tremula.cache set to a folder, an executable compiled before is read from it;
    with tremula.dump set to one, a text of what each pass left is written there.
    """
    parsed = parse_options(options)
    folder = parsed.text("tremula.dump")
    state = CompilerState(graph, programs, parsed)
    with small_pages(), dump_passes(os.path.expanduser(folder)) if folder else nullcontext():
        executable = _compiled(state, progress or _no_progress)
    check_memory(executable, parsed)
    return executable


def _compiled(state: CompilerState, progress: Progress) -> Executable:
    """Run the passes, or after the first find their result in the cache."""
    cached = None
    for done, named in enumerate(PASSES):
        if done == _N_BEFORE_CACHE:
            cached = _cache_path(state.lowered, state.options)
            executable = _from_cache(cached)
            if executable is not None:
                progress(len(PASSES), len(PASSES))
                return executable
        state = run_passes("graph", [named], state, CompilerState.text)
        progress(done + 1, len(PASSES))
    assert state.executable is not None, "the last pass makes it"
    if cached is not None:
        state.executable.save(str(cached))
    return state.executable


def _no_progress(step: int, total: int) -> None:
    """The default of `progress`: nothing is shown."""


def check_memory(executable: Executable, options: OptionValues) -> None:
    """Raise, or with debug.allowOutOfMemory warn, if a tile is out of memory."""
    analysis = executable.analysis
    chip = executable.target.chip
    error = out_of_memory_error(analysis.memory, analysis.liveness, executable.variables, chip)
    if error is None:
        return
    if options.flag("debug.allowOutOfMemory"):
        warnings.warn(str(error), OutOfMemoryWarning, stacklevel=3)
        return
    error.report, error.executable = make_report(executable), executable
    raise error


def _cache_path(programs: LoweredPrograms, options: OptionValues) -> Path | None:
    directory = options.text("tremula.cache")
    return (
        Path(os.path.expanduser(directory)) / f"{content_hash(programs, options)}.tremula"
        if directory
        else None
    )


def _from_cache(path: Path | None) -> Executable | None:
    """An executable compiled earlier. A damaged file is a cache miss and gets replaced."""
    if path is None or not path.exists():
        return None
    try:
        return Executable.load(str(path))
    except FileLoadError as error:
        warnings.warn(f"compiling again: {error}", stacklevel=3)
        return None
