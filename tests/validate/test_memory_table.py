"""Whether public programs fit: which program a row means, and how parts of chips add up."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.validate.tiny_published import N_TILES, _vit
from tremula.compiler.passes.memory import CATEGORIES
from tremula.validate.workloads.models.memory_table import (
    MemoryNeed,
    fullest_tile,
    memory_lines,
    public_rows,
    training_of,
    with_batch,
)
from tremula.validate.workloads.models.pipeline import (
    Optimizer,
    Reduced,
    Training,
    equal_layers,
    whole,
)


def example(of, optimizer, build=None, replicas=4):
    return Training(
        build=build or (lambda _: (None, ())), of=of, accumulation=8, replicas=replicas,
        optimizer=optimizer, proportions=(0.6,), n_tiles=N_TILES,
    )  # fmt: skip


def memory_with(always, temporary, n_tiles=1):
    """An executable whose chips have these bytes of variables, code and temporary things."""
    rows = [np.zeros((len(CATEGORIES), len(always) * n_tiles), np.int64) for _ in range(2)]
    for chip, (variables, code) in enumerate(always):
        rows[0][CATEGORIES.index("Variables"), chip] = variables
        rows[0][CATEGORIES.index("Vertex Code"), chip] = code
        rows[1][CATEGORIES.index("Variables"), chip] = temporary[chip]
    memory = SimpleNamespace(always_live=rows[0], temporary=rows[1], available_bytes=1000)
    return SimpleNamespace(analysis=SimpleNamespace(memory=memory))


def test_layers_add_their_tensors_and_share_their_code():
    """Two layers and the ends: variables add up, code comes once, the larger temporary counts."""
    training = example(equal_layers((2, 3)), Optimizer(kind="sgd"))
    executable = memory_with([(100, 10), (30, 7), (0, 0)], [5, 8, 0])
    assert fullest_tile(training, executable, np.zeros(3)) == 100 + 2 * 30 + 10 + 7 + 8


def test_sharded_states_count_once_over_replicas():
    """Of states on chips that replicas share, the small build has all, the program a share."""
    optimizer = Optimizer(kind="adam", first_is_half=True, is_sharded=True)
    training = example(whole(1), optimizer, replicas=4)
    assert (
        fullest_tile(training, memory_with([(100, 0)], [0]), np.array([8.0])) == 100 - 8 * 6 * 0.75
    )


@pytest.mark.parametrize("row", public_rows(), ids=lambda row: row.id)
def test_every_public_program_is_known(row):
    """Each row of the table finds its training program, on as many chips as it has."""
    training = training_of(row)
    n_chips = len(training.of.parts) * training.replicas
    assert n_chips == row.n_ipus
    assert isinstance(training.of, Reduced)


def test_a_larger_batch_repeats_the_inputs():
    """Twice the batch is the same model with twice as many rows."""
    training = example(whole(1), Optimizer(kind="sgd"), lambda _: ("model", [torch.zeros(3, 2)]))
    model, (tensor,) = with_batch(training, 2).build(())
    assert (model, tuple(tensor.shape)) == ("model", (6, 2))


def test_a_need_says_whether_it_fits():
    """The verdict compares with what a tile has."""
    assert MemoryNeed("x", 1, 900, 1000).fits
    assert not MemoryNeed("x", 2, 1100, 1000).fits
    assert MemoryNeed("x", 2, 1100, 1000).share == pytest.approx(1.1)


def test_the_table_has_two_lines_for_each_program(monkeypatch):
    """A line at the public batch and one at twice that, with what is over."""
    needs = iter([MemoryNeed("a", 1, 900, 1000), MemoryNeed("a", 2, 1100, 1000)])
    name = "tremula.validate.workloads.models.memory_table.memory_need"
    monkeypatch.setattr(name, lambda _row, _factor: next(needs))
    header, first, second = memory_lines([SimpleNamespace(id="a")])
    assert "fits" in first
    assert "100 bytes over" in second
    assert header.startswith("program")


@pytest.mark.slow
def test_a_tiny_program_is_compiled_for_its_memory():
    """From a model to the bytes of its fullest tile."""
    from tremula.validate.workloads.model_call import compiled_call
    from tremula.validate.workloads.models.pipeline import training_call

    training = example(whole(1), Optimizer(kind="sgd"), lambda _: _vit(), replicas=1)
    executable = compiled_call(training_call(training), "bow").program().executable
    assert fullest_tile(training, executable, np.zeros(1)) > 0
