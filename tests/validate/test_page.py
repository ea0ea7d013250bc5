"""docs/accuracy.md: its tables are what the model says today."""

from pathlib import Path

import pytest

from tremula.base.errors import FileLoadError
from tremula.validate import PUBLISHED, ValidationResult, read_rows, validate
from tremula.validate.page import BEGIN, END, row_line, rows_on_page, write_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"


@pytest.mark.slow
def test_the_page_is_up_to_date():
    """Rows of the quick families stand on the page as the model computes them now."""
    families = ["memory and exchange", "links between chips", "host"]
    outcome = validate(read_rows(PUBLISHED), families)
    missing = {row_line(one) for one in outcome.checked} - rows_on_page(PAGE)
    assert not missing, "run: tremula validate --large --sample 300 --page docs/accuracy.md"


def test_only_the_marked_part_is_written(tmp_path):
    """What people wrote around the tables stays; a page without marks is refused."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    rows = [row for row in read_rows(PUBLISHED) if row.id in ("jia-mem-lat", "popsparse-fit")]
    write_page(page, validate(rows), ["a sample."])
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "a sample.\n" in text
    assert "| jia-mem-lat | 6.019 | 6 | cycles | +0.3% |" in text
    assert "popsparse-fit" in text
    assert "old" not in text
    page.write_text("nothing")
    with pytest.raises(FileLoadError, match="has no generated part"):
        write_page(page, ValidationResult((), ()))
