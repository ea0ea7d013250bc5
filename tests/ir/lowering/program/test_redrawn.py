"""Random numbers in pipelines: the backward stage draws them again from their seed."""

import pytest
import torch
from torch import nn

import poptorch
from tests.ir.lowering.program.test_pipeline import Run, on_chip, run, sgd, values

WIDTH, N_ROWS = 48, 8


class Dropped(nn.Module):
    """Each stage drops elements of its scaled input; the outputs show which."""

    def __init__(self, n_stages: int):
        super().__init__()
        self.scales = nn.ParameterList(torch.ones(WIDTH) for _ in range(n_stages - 1))

    def forward(self, x):
        results = []
        for chip, scale in enumerate(self.scales):
            on_chip(str(chip), chip)
            results.append(nn.functional.dropout(x * scale, 0.5))
        on_chip("last", len(self.scales))
        return *results, poptorch.identity_loss(sum(y.sum() for y in results), "sum")


def dropped(n_stages: int, recomputes: bool = True) -> Run:
    model = Dropped(n_stages)
    return run(
        model, [values(7, N_ROWS, WIDTH)], tuple(range(n_stages)), pipelined=True,
        rule=sgd(model), recomputes=recomputes,
    )  # fmt: skip


@pytest.mark.parametrize(("n_stages", "recomputes"), [(2, True), (4, False)])
def test_backward_drops_what_forward_dropped(n_stages, recomputes):
    """The gradient of a scale is the sum of what its stage let through."""
    result = dropped(n_stages, recomputes)
    n_results = n_stages
    for stage, after in enumerate(result.weights):
        outputs = torch.stack(result.outputs[stage::n_results][:7])
        share = (outputs == 0).float().mean()
        assert 0.4 < share < 0.6, "half of the elements are dropped"
        gradient = outputs.sum(1).mean(0)  # of a scale of 1: what came through
        torch.testing.assert_close(after, 1 - 0.1 * gradient, rtol=1e-5, atol=1e-5)


def test_rings_hold_seeds_not_masks():
    """Between two stages of a chip wait the stage's input and eight bytes for each mask."""
    result = dropped(3)
    variables = result.engine.executable.variables
    rings = {
        (name, type): end - begin
        for name, type, begin, end in zip(
            variables.names, variables.type_names, variables.base_bytes, variables.end_bytes,
            strict=True,
        )
        if name.startswith("ring") and "/" not in name
    }  # fmt: skip
    n_slots = {"ring0-4": 4, "ring1-3": 2}
    seeds = {name: n for (name, type), n in rings.items() if type == "UNSIGNED_INT"}
    assert seeds == {name: 8 * n for name, n in n_slots.items()}
    inputs = {name: n for (name, type), n in rings.items() if type == "FLOAT"}
    assert inputs == {name: 4 * N_ROWS * WIDTH * n for name, n in n_slots.items()}


def test_a_value_as_small_as_its_seed_is_kept():
    """Nothing is gained by drawing one number again."""

    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            on_chip("0", 0)
            y = nn.functional.dropout(x * self.scale, 0.5)
            on_chip("1", 1)
            return y, poptorch.identity_loss(y.sum(), "sum")

    model = One()
    result = run(model, [values(4, 1)], (0, 1), pipelined=True, rule=sgd(model))
    outputs = torch.stack(result.outputs[0::2])
    torch.testing.assert_close(result.weights[0], 1 - 0.1 * outputs.mean(0))
    names = result.engine.executable.variables.names
    assert not any("seed" in name.lower() for name in names)
