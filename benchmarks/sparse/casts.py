"""Casts of 10⁷ numbers to and from 8 bits on the host, against copying them."""

from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure
from benchmarks.measure import ratio
from tremula.base.floats import QuarterFormat
from tremula.column_loops.quarter_casts import decoded, encoded

N_VALUES = 10_000_000


def cast_figures() -> Iterator[Figure]:
    """A copy reads and writes 40 MB; a cast reads or writes 40 MB and makes a new array, too."""
    values = np.random.default_rng(0).standard_normal(N_VALUES, np.float32)
    copied = np.empty_like(values)
    for form in QuarterFormat:
        codes = encoded(values, form)
        name = form.name.lower()
        there = ratio(lambda f=form: encoded(values, f), lambda: np.copyto(copied, values))
        yield Figure.of(f"cast-to-{name}", there.value, "× copy", "<= 3")
        back = ratio(lambda f=form, c=codes: decoded(c, f), lambda: np.copyto(copied, values))
        yield Figure.of(f"cast-from-{name}", back.value, "× copy", "<= 3")
