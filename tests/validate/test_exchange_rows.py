"""Memory, exchange and links of GC2: what the model says of published measurements."""

import numpy as np
import pytest

from tremula.validate import LINK_ROWS, PUBLISHED, Score, read_rows, validate
from tremula.validate.timing import time_program


@pytest.mark.slow
def test_memory_and_exchange_of_one_chip():
    """The median error of single-chip memory and exchange rows is at most 10 %."""
    outcome = validate(read_rows(PUBLISHED), ["memory and exchange"])
    score = Score.of(outcome.checked)
    assert score.n_rows == 19
    assert score.median <= 0.10


@pytest.mark.slow
def test_links_and_host():
    """Messages between chips, one way and both, to one and to all: 10 % off in the median."""
    rows = [*read_rows(PUBLISHED), *read_rows(LINK_ROWS)]
    links = validate(rows, ["links between chips"])
    assert not links.unchecked
    score = Score.of(links.checked)
    assert score.n_rows >= 90
    assert score.median <= 0.10
    assert Score.of(validate(rows, ["host"]).checked).worst <= 0.10


def test_steps_are_counted_through_loops():
    """A program's cycles are those of its steps, times the loops around them."""
    from tremula.base.types import FLOAT
    from tremula.poplar.programs import Call, Copy, Repeat, Sequence

    def build(graph, sequence):
        a, b = (graph.add_variable(FLOAT, [64], n, mapping=i) for i, n in enumerate("ab"))
        inner = Sequence([Copy(a, b), Repeat(5, Copy(b, a))])
        function = graph.add_function(Sequence([Copy(a, b)]))
        sequence.add(Repeat(3, inner))
        sequence.add(Call(function))
        sequence.add(Repeat(0, Copy(a, b)))

    timing = time_program("gc2", 1, build)
    assert sorted(n for _, n, _ in timing.steps) == [0, 1, 3, 15]
    assert timing.cycles == sum(n * cycles for _, n, cycles in timing.steps)
    assert timing.cycles == np.sum([timing.sync, timing.exchange, timing.compute])
