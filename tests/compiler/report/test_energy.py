"""Joules of a program: each part is its constant times what the program did."""

from io import StringIO

import numpy as np
import pytest

import tremula as tr
from tremula.compiler.report.energy import PARTS, flop_picojoules, mean_way_mm
from tremula.hardware import chip
from tremula.poplibs import poplin

N = 64


@pytest.fixture(scope="module")
def engine():
    """A product of halves on two replicas, and a copy from chip to chip of each."""
    device = tr.IPUModel("bow", 4, 4).create_device()
    graph, sequence = tr.Graph(device, replication_factor=2), tr.Sequence()
    a, b = (graph.add_variable(tr.HALF, [N, N], name, mapping="linear") for name in "ab")
    poplin.mat_mul(graph, a, b, sequence)
    here = graph.add_variable(tr.FLOAT, [100], "here", mapping=0)
    there = graph.add_variable(tr.FLOAT, [100], "there", mapping=4)
    sequence.add(tr.Copy(here, there))
    engine = tr.Engine(graph, sequence).load()
    engine.run()
    return engine


def test_parts_are_counts_times_constants(engine):
    """Idle power, flops and bytes over links of all replicas cost what the constants say."""
    report, bow = engine.report(), chip("bow")
    energy = report.energy
    assert energy.n_chips == 4
    assert energy.seconds == pytest.approx(report.total_cycles / bow.clock_hz)
    assert energy.idle == pytest.approx(4 * bow.idle_watts * energy.seconds)
    n_bytes = int(report.links.n_bytes.sum())
    assert n_bytes >= 2 * 400
    assert energy.links == pytest.approx(n_bytes * bow.energy_pj_per_byte_link * 1e-12)
    costs = engine.executable.analysis.costs
    n_flops = 2 * int(costs.n_flops.sum())
    assert n_flops >= 2 * 2 * N**3
    assert 1.0 <= energy.compute * 1e12 / n_flops <= 2.5
    assert energy.total == pytest.approx(sum(getattr(energy, part) for part in PARTS))
    assert energy.provenances["compute"] == "stated"
    assert energy.provenances["idle"] == "guessed"
    assert 0 < energy.guessed_share < 1


def test_energy_in_the_text(engine):
    """The text report has the joules, and the provenance of each part."""
    engine.print_profile_summary(text := StringIO())
    assert f"Energy:  {engine.report().energy.total:.4g} J" in text.getvalue()
    assert "[guessed]" in text.getvalue()


def test_units_are_known_by_their_rates():
    """A flop costs what its unit takes: halves less than floats, whatever the rate is near to."""
    bow = chip("bow")
    assert flop_picojoules(bow, 128) == bow.energy_pj_per_flop_half
    assert flop_picojoules(bow, 60) == bow.energy_pj_per_flop_half_float
    assert flop_picojoules(bow, 32) == bow.energy_pj_per_flop_float
    assert flop_picojoules(bow, 4) == bow.energy_pj_per_flop_float
    assert flop_picojoules(chip("gc2"), 64) == chip("gc2").energy_pj_per_flop_half_float
    assert np.isclose(mean_way_mm(bow), 19.1, atol=0.2)
