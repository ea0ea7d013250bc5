"""Functions of tensors on tiles by their public names."""

import pytest
import torch

import tremula


def scaled(x):
    return torch.relu(x) * 2


def test_a_function_runs_on_tiles():
    """`tremula.run_on_tiles` gives what PyTorch gives."""
    x = torch.tensor([-1.0, 0.5, 3.0])
    (result,) = tremula.run_on_tiles(scaled, x)
    torch.testing.assert_close(result, scaled(x))


def test_a_function_has_a_cost():
    """`tremula.cost_of` reports cycles and memory, and more work takes more of both."""
    small, large = (
        tremula.cost_of(scaled, torch.ones(n), chip="bow", n_tiles=4) for n in (100, 10_000)
    )
    assert 0 < small.total_cycles < large.total_cycles
    assert small.memory.excluding_gaps.sum() < large.memory.excluding_gaps.sum()


def test_a_slower_chip_takes_longer():
    """The chip can be named, or be one of the caller's."""
    slow = tremula.chip("bow").replace(name="slow", clock_hz=1e9)
    fast, slower = (
        tremula.cost_of(scaled, torch.ones(100), chip=chip, n_tiles=4) for chip in ("bow", slow)
    )
    assert fast.total_seconds < slower.total_seconds


def test_operations_without_a_lowering_have_no_cost():
    """What cannot run on tiles is rejected by name."""
    with pytest.raises(tremula.errors.PoplarError, match="linalg_eig"):
        tremula.cost_of(lambda x: torch.linalg.eigvals(x).abs(), torch.eye(3))
