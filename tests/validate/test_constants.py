"""The list of fitted constants: complete, and with rows that exist."""

import re
from pathlib import Path

from tests.sources import ROOT
from tremula.validate.constants import constants_page, fitted_constants, rows_used

# Where a cost may be fitted: everything that decides cycles.
FOLDERS = ("poplibs", "codelets", "compiler", "hardware", "runtime", "validate/workloads")
SAYS_FITTED = re.compile(r"\bFitted to\b|\bfitted to\b|provenance ?= ?\"fitted\"|provenance=FITTED")


def test_every_fitted_constant_names_its_rows():
    """Rows are those of shipped files, or the source says which others were used."""
    constants = fitted_constants()
    assert {"N_POSITIONS_IN_START", "SINE_SLOTS", "HOST_S_PER_CALL"} <= {c.name for c in constants}
    for one in constants:
        assert one.source.strip()
        assert bool(one.rows) == bool(rows_used(one)), one


def test_no_other_constant_is_fitted():
    """A file that calls a cost fitted registers what it fitted, so the list is complete."""
    source = Path(ROOT) / "src"
    fitted = {
        ".".join(path.relative_to(source).with_suffix("").parts)
        for folder in FOLDERS
        for path in (source / "tremula" / folder).rglob("*.py")
        if SAYS_FITTED.search(path.read_text(encoding="utf-8"))
    }
    assert fitted
    assert fitted <= {one.module for one in fitted_constants()}


def test_the_page_is_that_of_the_code():
    """docs/constants.md is what `tremula validate --constants` prints."""
    text = (Path(ROOT) / "docs/constants.md").read_text(encoding="utf-8")
    assert text.endswith(constants_page()), "renew it: tremula validate --constants"
