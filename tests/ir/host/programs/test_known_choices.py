"""The program that was the fastest for a step is known to the next process, for that step only."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.ir.steps import captured
from tremula.ir.host.compiled.keys import graph_lines
from tremula.ir.host.programs.known_choices import (
    choice_key,
    forget_choice,
    known_choice,
    remember_choice,
)
from tremula.ir.repetition import Repetition

CPU = torch.device("cpu")


def key_of(n_features: int, *, scale: float = 2.0, repetition: Repetition | None = None) -> str:
    step = captured(lambda x: torch.tanh(x) * scale, torch.ones(3, n_features))
    return choice_key(step, CPU, repetition or Repetition())


def test_a_choice_is_known_for_equal_steps_only():
    """The key depends on operations, shapes, numbers and repetition, not on names of nodes."""
    assert key_of(4) == key_of(4)
    others = [key_of(5), key_of(4, scale=3.0), key_of(4, repetition=Repetition(n_iterations=2))]
    assert len({key_of(4), *others}) == 4
    step = captured(torch.tanh, torch.ones(3, 4))
    call = next(node for node in step.graph.nodes if node.op == "call_function")
    call.target = key_of
    text = "\n".join(graph_lines(step.graph))
    assert "key_of" in text
    assert "0x" not in text, "addresses differ in each process"
    linear = captured(nn.Linear(4, 2), torch.ones(3, 4))
    assert choice_key(linear, CPU, Repetition()) != key_of(4)


def test_choices_are_beside_what_inductor_has_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They are read back, forgotten, and not believed if a file is damaged."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert known_choice("key") is None
    remember_choice("key", "inductor-cuda-graph")
    assert known_choice("key") == "inductor-cuda-graph"
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    file.write_bytes(b"\xff nonsense")
    assert known_choice("key") is None
    forget_choice("key")
    forget_choice("key")
    assert not file.exists()
