"""What analysing a codelet found is kept between processes, and never taken for another's."""

import pytest

import tremula as tr
from tremula.base.errors import PoplarError
from tremula.codelets import analysis_cache
from tremula.codelets.python_codelet import codelet_of


@pytest.fixture
def entries(tmp_path, monkeypatch):
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    return lambda: sorted(tmp_path.glob("codelets/analysis_*.json"))


def _doubling() -> type:
    class Doubling(tr.Vertex):
        x: tr.InOut[tr.Vector[tr.FLOAT]]

        def compute(self):
            for i in range(len(self.x)):
                self.x[i] = self.x[i] + self.x[i]

    return Doubling


def test_a_second_analysis_reads_the_first(entries, monkeypatch):
    """Equal source text is analysed once; the codelet read from the cache equals the first one."""
    first = codelet_of(_doubling())
    assert len(entries()) == 1
    monkeypatch.setattr(analysis_cache, "_analyse", None)
    second = codelet_of(_doubling())
    assert (second.spec.fields, second.spec.n_instructions) == (
        first.spec.fields,
        first.spec.n_instructions,
    )
    assert second.kernel_text() == first.kernel_text()


def test_a_damaged_entry_is_made_again(entries):
    """A damaged entry is a cache miss."""
    first = codelet_of(_doubling())
    entries()[0].write_text("{")
    assert codelet_of(_doubling()).kernel_text() == first.kernel_text()
    assert entries()[0].read_text() != "{"


def test_what_is_refused_is_not_kept(entries):
    """A codelet outside the subset is refused every time."""

    class Opening(tr.Vertex):
        x: tr.Output[tr.FLOAT]

        def compute(self):
            self.x = open("file")  # noqa: SIM115

    for _ in range(2):
        with pytest.raises(PoplarError):
            codelet_of(Opening)
    assert entries() == []


def test_a_folder_that_cannot_be_written_costs_time_only(monkeypatch, tmp_path):
    """Without a cache folder codelets are analysed in each process."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(blocked))
    assert codelet_of(_doubling()).spec.n_instructions > 0
