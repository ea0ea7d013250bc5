"""A tensor's way: the files from a PopTorch call to a kernel of the host, and to a tile's vertex.

docs/architecture.md ("A tensor's way") says what counts as a file on the way and lists the files.
Here a call is traced: at each station the files on Python's stack are noted.
"""

import itertools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest
import torch

import poptorch
import tremula

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
ENTRY = "tremula/frontends/poptorch/executor/entry.py"  # inferenceModel, before the call
INTERPRETER = "tremula/runtime/interpreter/loop.py"  # native code, which has no frames of Python
MODEL_CALL = "run_forward"  # the one function of a front end that the IR calls: the model itself
MOST_TO_HOST, MOST_TO_TILE = 12, 30


class Doubled(torch.nn.Module):
    """The smallest model with two operations."""

    def forward(self, x):
        return x * 2 + 1


@dataclass(frozen=True)
class Frame:
    """A frame of a file of the project: its path under src, and its function."""

    path: str
    function: str

    @property
    def side(self) -> str:
        """Front end, IR, or what is below."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "tremula" else parts[0]


@dataclass
class Trace:
    """The stack at the first arrival at each station, outermost frame first."""

    stacks: dict[str, list[Frame]] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """What `sys.setprofile` calls."""
        if event != "call":
            return
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        for station, is_reached in STATIONS.items():
            if station not in self.stacks and is_reached(file, name):
                self.stacks[station] = _stack(frame)

    def files(self, *stations: str) -> list[str]:
        """Files on the way through these stations, in the order in which they are met."""
        met = [frame.path for station in stations for frame in self.stacks[station]]
        return list(dict.fromkeys([ENTRY, *met]))


def _at(path: str, function: str) -> Callable[[str, str], bool]:
    return lambda file, name: name == function and file.endswith(path)


STATIONS: dict[str, Callable[[str, str], bool]] = {
    "arguments are taken apart": _at("poptorch/inputs/arguments.py", "take_apart"),
    "an operation is recorded": _at("tremula/ir/recorder.py", "_record"),
    "passes are applied": _at("tremula/ir/passes/__init__.py", "apply"),
    "a kernel of the host runs": lambda f, n: f.startswith("<eval_with_key") and n == "forward",
    "vertices are added": _at("tremula/poplar/vertices/table.py", "__init__"),
    "the graph is lowered": _at("tremula/compiler/lower/lower.py", "lower"),
    "the executable is emitted": _at("tremula/compiler/executable/emit.py", "emit"),
    "the engine is called": _at("tremula/runtime/engine.py", "run"),
    "the interpreter starts": _at("tremula/runtime/machine.py", "set_run"),
}
TO_HOST = tuple(STATIONS)[:4]
TO_TILE = (*TO_HOST[:3], *tuple(STATIONS)[4:])


def _stack(frame: FrameType | None) -> list[Frame]:
    frames = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCE):
            frames.append(Frame(path.relative_to(SOURCE).as_posix(), frame.f_code.co_name))
        frame = frame.f_back
    return frames[::-1]


def _traced(*, on_tiles: bool) -> Trace:
    """The trace of a first call; an earlier model's call has imported everything."""
    options = poptorch.Options().useIpuModel(on_tiles)
    trace = Trace()
    with tremula.configured(device="cpu", host="eager", chip="gc2"):
        poptorch.inferenceModel(Doubled(), options)(torch.ones(4))
        before = sys.getprofile()
        sys.setprofile(trace.note)
        try:
            poptorch.inferenceModel(Doubled(), options)(torch.ones(4))
        finally:
            sys.setprofile(before)
    return trace


@pytest.fixture(scope="module")
def on_host():
    return _traced(on_tiles=False)


@pytest.fixture(scope="module")
def on_tiles():
    return _traced(on_tiles=True)


def test_the_way_to_a_kernel_of_the_host(on_host):
    """At most twelve files, and the page lists exactly these."""
    files = on_host.files(*TO_HOST)
    assert len(files) <= MOST_TO_HOST, files
    assert _listed("To a kernel of the host") == files


def test_the_way_to_a_vertex(on_tiles):
    """At most thirty files, and the page lists exactly these."""
    files = [*on_tiles.files(*TO_TILE), INTERPRETER]
    assert len(files) <= MOST_TO_TILE, files
    assert _listed("To a vertex of a tile") == files


def _crossings(stack):
    """Pairs of neighbouring frames on the two sides, without the call of the model."""
    sides = [frame for frame in stack if frame.side in ("frontends", "ir")]
    pairs = list(itertools.pairwise(sides))
    down = [pair for pair in pairs if (pair[0].side, pair[1].side) == ("frontends", "ir")]
    up = [pair for pair in pairs if (pair[0].side, pair[1].side) == ("ir", "frontends")]
    return down, up


@pytest.mark.parametrize("where", ["on_host", "on_tiles"])
def test_one_crossing_and_no_way_back(where, request):
    """Only `shared/program.py` calls the IR; the IR calls a front end only to run the model."""
    trace = request.getfixturevalue(where)
    for station, stack in trace.stacks.items():
        down, up = _crossings(stack)
        assert all(below.function == MODEL_CALL for _, below in up), station
        outside_of_model = [pair for pair in down if pair[0].function != MODEL_CALL]
        callers = {above.path for above, _ in outside_of_model}
        assert callers <= {"tremula/frontends/shared/program.py"}, station
        assert len(outside_of_model) <= 1, station


def _listed(heading):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split(f"### {heading}\n")[1].split("\n#")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, flags=re.MULTILINE)
