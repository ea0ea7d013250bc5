"""Histograms of exponents: what they count, what formats lose, the table, the page, the command."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from tests.frontends.poptorch.models import quiet
from tremula import scaling
from tremula.base.floats import QuarterFormat, float32_to_quarter
from tremula.commands import main


def test_counts_and_losses_are_those_of_the_format():
    """Zero and NaN are apart; numbers said to underflow are those that a cast makes zero."""
    entry = scaling.Exponents("x", "value")
    powers = 2.0 ** torch.arange(-20, 12)
    numbers = torch.cat([1.5 * powers, torch.tensor([0.0, float("nan"), float("inf")])])
    entry.add(numbers)
    assert (entry.n, entry.n_zeros, entry.n_bad) == (32, 1, 2)
    under, over = entry.shares(scaling.FORMATS["F143"])
    codes = float32_to_quarter(1.5 * powers.numpy(), QuarterFormat.F143)
    assert under == pytest.approx((codes == 0).sum() / 34)
    assert over == pytest.approx(((codes == 0x80).sum() + 2) / 34)


def test_values_weights_and_gradients_are_watched():
    """Each module's result and each weight, with their gradients, has a histogram; then it ends."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with scaling.watch() as watched:
        model(torch.randn(5, 4)).sum().backward()
    kinds = {kind for _, kind in watched.tensors}
    assert kinds == {"value", "weight", "gradient", "weight gradient"}
    assert watched.tensors["0", "value"].n == 15
    assert watched.tensors["0.weight", "weight gradient"].counts.sum() <= 12
    before = watched.tensors["0", "value"].n
    model(torch.randn(5, 4))
    assert watched.tensors["0", "value"].n == before


class _Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        result = self.linear(self.norm(x))
        return result, nn.functional.mse_loss(result, torch.zeros(8, 3))


@pytest.mark.slow
def test_what_poptorch_compiles_is_seen_once():
    """A training model runs eagerly, too, which changes neither weights, buffers nor seeds."""
    losses = {}
    for is_watched in (False, True):
        torch.manual_seed(0)
        model = _Loss()
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
        executor = poptorch.trainingModel(model, quiet(), optimizer)
        with scaling.watch() if is_watched else nullcontext() as watched:
            batches = [torch.randn(8, 4) for _ in range(3)]
            losses[is_watched] = [float(executor(x)[1]) for x in batches]
    assert losses[False] == losses[True]
    assert watched.tensors["linear", "value"].n == 24
    assert watched.tensors["linear.weight", "weight gradient"].n == 12


def test_table_and_page_show_every_tensor():
    """A line each, with what is lost; the page is one file with the names escaped."""
    small = scaling.Exponents("a<b>", "gradient")
    small.add(torch.full((10,), 2.0**-13))
    table = scaling.exponents_table([small])
    assert "100.0% under" in table
    assert "F143: 1 underflow, 0 overflow" in table
    page = scaling.exponents_page([small], "script.py")
    assert "a&lt;b&gt; · gradient" in page
    assert page.count("<rect") == 1
    assert np.char.find(page, "http") == page.find("http://www.w3.org")  # nothing is fetched


SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
(model(torch.randn(4, 8)).sum() * 1e-4).backward()
"""


def test_the_command(tmp_path, capsys):
    """It runs a script, prints the table, writes the page; wrong scripts and names are errors."""
    script = tmp_path / "small.py"
    script.write_text(SCRIPT)
    page = tmp_path / "page.html"
    kinds = ["--kind", "gradient", "weight gradient"]
    assert main(["exponents", *kinds, "--format", "F143", "--html", str(page), str(script)]) == 0
    printed = capsys.readouterr().out
    assert "weight gradient" in printed
    assert "under" in printed
    assert page.read_text().startswith("<!doctype html>")
    script.write_text("x = 1")
    assert main(["exponents", str(script)]) != 0
    assert "ran no module of PyTorch" in capsys.readouterr().err
    assert main(["exponents", "--format", "F134", "--kind", "value", "--", str(script)]) != 0
    assert "F143" in capsys.readouterr().err
