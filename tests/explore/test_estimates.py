"""Estimates: what is guessed of candidates before they are compiled, and what trials teach."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tremula.explore.candidates import Candidate
from tremula.explore.cut_points import cheapest_cuts, segments_of
from tremula.explore.estimates import Estimates
from tremula.explore.trial import TrialOutcome
from tremula.hardware import system


@pytest.fixture
def estimates(small_task):
    return Estimates(small_task, segments_of(small_task.model, small_task.args))


def outcome_of(candidate, *, seconds=1e-3, n_bytes=100_000, busy=None):
    n = candidate.n_stages
    return TrialOutcome(
        candidate,
        fits=n_bytes <= 200_000,
        seconds=seconds,
        n_samples=24,
        n_bytes=(n_bytes,) * n,
        available_bytes=200_000,
        busy_share=busy or (1.0,) * n,
        compute_cycles=(9,) * n,
    )


PIPELINE = Candidate(("wide.0",), 1, accumulation=6, recomputes=False)


def test_what_needs_more_is_estimated_to_need_more(estimates):
    """Stages before the last take longer if they compute again; products, if they have less."""
    kept = replace(PIPELINE, cuts=("wide.1",))
    again = replace(kept, recomputes=True)
    assert estimates.of(kept).seconds < estimates.of(again).seconds
    less = replace(kept, memory_proportion=0.15)
    assert estimates.of(less).memory_share < estimates.of(kept).memory_share
    assert estimates.of(less).seconds > estimates.of(kept).seconds


def test_more_kinds_of_operations_need_more_memory_for_code(estimates):
    """A stage with all layers has the code of every kind once: equal layers share it."""
    n_kinds = estimates.n_kinds
    assert n_kinds[2, 3] == n_kinds[2, 6]
    assert n_kinds[0, 8] == n_kinds[0, 3] + n_kinds[6, 8]
    assert n_kinds[3, 3] == 0


def test_states_of_tables_alone_take_less_time_and_more_memory(small_task):
    """States that leave the chip cost time; if only a table's do, others need memory."""
    model = nn.Sequential(nn.Embedding(2000, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    ids = torch.zeros(1, 8, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())
    task = replace(small_task, model=model, args=(ids,), system=system("pod4"), optimizer=optimizer)
    estimates = Estimates(task, segments_of(model, (ids,)))
    here = Candidate((), 1, accumulation=6)
    away = replace(here, states_off_chip=True)
    tables = replace(away, least_off_chip=32_000)
    for shorter, longer in ((here, tables), (tables, away)):
        assert estimates.of(shorter).seconds < estimates.of(longer).seconds
        assert estimates.of(shorter).memory_share > estimates.of(longer).memory_share


def test_an_outcome_replaces_the_guess(estimates):
    """After a trial its own estimate is what it took, in time and in memory."""
    estimates.learn(outcome_of(PIPELINE, seconds=3e-3, n_bytes=150_000))
    result = estimates.of(PIPELINE)
    assert result.seconds * 24 == pytest.approx(3e-3)
    assert result.memory_share == pytest.approx(0.75)


def test_cuts_follow_the_time_that_stages_took(estimates):
    """If the first stage took most of the time, the next cut is earlier."""
    before = estimates.cuts(PIPELINE, 2, most=None)
    estimates.learn(outcome_of(PIPELINE, busy=(1.0, 0.05)))
    after = estimates.cuts(PIPELINE, 2, most=None)
    names = estimates.segments.names
    assert names.index(after[0]) < names.index(before[0])


def test_cuts_keep_to_the_memory(estimates):
    """Where even times do not fit, stages are cut so that they do; where nothing does, evenly."""
    shares = estimates._share_tables(PIPELINE)
    n = len(estimates.segments)
    fullest = [max(shares[0, 0, row], shares[1, row, n]) for row in range(1, n)]
    (name,) = estimates.cuts(PIPELINE, 2, most=min(fullest))
    row = estimates.segments.names.index(name) + 1
    assert fullest[row - 1] == min(fullest)
    assert estimates.cuts(PIPELINE, 2, most=0.0) == (name,)


def test_memory_of_products_is_learnt_from_a_pair(estimates):
    """If less memory for products changed nothing, still less is not expected to either."""
    estimates.learn(outcome_of(PIPELINE, n_bytes=190_000))
    less = replace(PIPELINE, memory_proportion=0.3)
    assert estimates.of(less).memory_share < 0.95
    estimates.learn(outcome_of(less, n_bytes=190_000))
    least = replace(PIPELINE, memory_proportion=0.15)
    assert estimates.of(least).memory_share == pytest.approx(0.95)


def test_a_candidate_that_failed_teaches_nothing(estimates):
    """An error has no times."""
    before = estimates.of(PIPELINE)
    estimates.learn(TrialOutcome(PIPELINE, error="no"))
    assert estimates.of(PIPELINE) == before


@given(st.integers(2, 7), st.data())
def test_cheapest_cuts_are_those_of_all_cuts(n, data):
    """No other cuts have a smaller largest cost, whatever stages cost."""
    n_stages = data.draw(st.integers(1, n))
    seed = data.draw(st.integers(0, 2**32 - 1))
    costs = np.random.default_rng(seed).random((n_stages, n + 1, n + 1))

    def worst(cuts):
        bounds = (0, *cuts, n)
        return max(costs[s, bounds[s], bounds[s + 1]] for s in range(n_stages))

    best = min(worst(cuts) for cuts in combinations(range(1, n), n_stages - 1))
    assert worst(cheapest_cuts(costs)) == best
