"""Applications as `make garden` runs them: the cheapest here, all of them in `make test-wide`."""

import pytest

from tremula.garden.catalogue.catalogue import all_applications
from tremula.garden.catalogue.figures import read_figures
from tremula.garden.catalogue.run_all import run_all

MOST_SAMPLE_SECONDS = 10  # of CPU, as their manifests state it


def cases():
    """Each application; those beyond the sample are marked wide."""
    left = MOST_SAMPLE_SECONDS
    for one in sorted(all_applications(), key=lambda one: (one.tiny_seconds, one.name)):
        left -= one.tiny_seconds
        marks = [pytest.mark.slow] if left >= 0 else [pytest.mark.slow, pytest.mark.wide]
        yield pytest.param(one, id=one.name, marks=marks)


@pytest.mark.parametrize("one", list(cases()))
def test_the_tiny_form_reaches_what_its_manifest_expects(one, tmp_path):
    """It runs offline in a separate process, and leaves figures that the page can show."""
    (outcome,) = run_all([one], tmp_path)
    assert outcome.is_right, outcome.output
    figures = read_figures(tmp_path / f"{one.name}.json")
    assert figures is not None
    assert set(one.expected) <= set(figures.results)


def test_a_sample_is_left():
    """At least one application belongs to the sample, and it stays within its time."""
    sampled = [case.values[0] for case in cases() if len(case.marks) == 1]
    assert sampled
    assert sum(one.tiny_seconds for one in sampled) <= MOST_SAMPLE_SECONDS
