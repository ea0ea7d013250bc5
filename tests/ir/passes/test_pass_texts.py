"""Every named pass can be watched, and leaves a text that says all of the step."""

import difflib

import torch
from torch import nn

from tests.ir.steps import captured
from tremula.base.passes import DUMP_VARIABLE, watch_passes
from tremula.ir.capture.bodies import record_loop
from tremula.ir.passes import COMMON_PASSES, HOST_PASSES, TILE_PASSES, apply
from tremula.ir.recording import active
from tremula.ir.repetition import Repetition
from tremula.ir.run.session import HostSession
from tremula.ir.settings import HostSettings
from tremula.ir.text import step_text

X = torch.ones(4, 3)


class Net(nn.Module):
    """A layer, a constant and a repeated expression."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        y = self.layer(x)
        return torch.sigmoid(y) + torch.sigmoid(y) + torch.tensor([1.0, 2.0])


def texts_of(model, *inputs) -> dict[tuple[str, str], str]:
    """The text after each pass of a step that goes to tiles."""
    result = {}
    with watch_passes(lambda record, text: result.update({(record.stage, record.name): text()})):
        apply(captured(model, *inputs), TILE_PASSES, "tiles")
    return result


def test_every_named_pass_leaves_a_file(tmp_path, monkeypatch):
    """The passes of both executions, in the order they ran."""
    monkeypatch.setenv(DUMP_VARIABLE, str(tmp_path))
    step = captured(Net(), X)
    apply(step, TILE_PASSES, "tiles")
    HostSession(step, Repetition(1, 1, 1, 1.0), HostSettings(host="eager", device="cpu"))
    names = [f"step-{name}" for name, _ in COMMON_PASSES]
    names += [f"tiles-{name}" for name, _ in TILE_PASSES]
    names += [f"host-{name}" for name, _ in HOST_PASSES]
    names += ["host-move to the device", "host-spell out attention", "host-drop dead nodes"]
    names += ["host-keep contiguity", "host-keep memory format", "host-write over dead operands"]
    names += ["host-differentiate by forward kernels", "host-relax strides"]
    wanted = [f"{n:03}-{name.replace(' ', '-')}.txt" for n, name in enumerate(names, 1)]
    assert sorted(path.name for path in tmp_path.glob("*.txt")) == wanted


def test_equal_models_have_equal_texts():
    """Nothing in a text depends on when it was written; other weights are no other text."""
    assert texts_of(Net(), X) == texts_of(Net(), X)


def test_a_text_tells_a_step():
    """Inputs, constants, nodes with where they come from, outputs."""
    text = step_text(captured(Net(), X))
    assert "%parameter_0  float32[2, 3]  parameter 0 'layer.weight'" in text
    (line,) = [line for line in text.splitlines() if "aten::sigmoid(" in line]
    assert "float32[4, 2]" in line
    assert "# forward" in line
    assert "test_pass_texts.py:" in line
    assert "constants: 1\n" in text
    assert "float32[2]" in text
    assert "  output 0 'output_0'" in text


def test_a_text_differs_in_what_the_pass_did():
    """A shared expression is one line less, and its users read the other."""
    texts = texts_of(Net(), X)
    before, after = texts["step", "fold constants"], texts["step", "share common subexpressions"]
    diff = [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
        if line[0] in "+-" and not line.startswith(("+++", "---")) and "nodes:" not in line
    ]
    removed = [line for line in diff if line[0] == "-"]
    assert any("aten::sigmoid(" in line for line in removed)
    assert len(diff) <= 5


def test_bodies_of_loops_are_in_the_text():
    """The step of a body stands below the step that runs it."""

    def function(x):
        return record_loop(active(), 3, lambda y: y * 2, [x])[0]

    text = step_text(captured(function, X))
    assert "body 0 of %for_loop" in text
    assert "aten::mul" in text.partition("body 0")[2]
