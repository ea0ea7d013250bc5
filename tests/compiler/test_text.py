"""Texts of compilations: stable, small differences, one file for each pass."""

import difflib
from itertools import pairwise
from pathlib import Path

import pytest

import tremula as tr
from tremula import FLOAT
from tremula.base.passes import watch_passes
from tremula.compiler import text
from tremula.compiler.compile import PASSES, compile_graph


@pytest.fixture
def program(small_graph, touch):
    """program(name, n): a graph with a loop, a copy and one vertex on each of n tiles."""

    def make(name: str = "work", n: int = 4) -> tuple[tr.Graph, tr.Program]:
        graph = small_graph()
        x, y, z = (graph.add_variable(FLOAT, [128], v, mapping="linear") for v in "xyz")
        graph.create_host_read("z", z)
        compute_set = graph.add_compute_set(name)
        for tile in range(n):
            part = slice(32 * tile, 32 * tile + 32)
            fields = {"reads": x[0:4], "changes": y[part], "writes": z[part]}
            graph.add_vertex(compute_set, touch, fields, tile=tile)
        body = tr.Sequence([tr.Execute(compute_set), tr.Copy(z, x)])
        return graph, tr.Sequence([tr.Repeat(3, body)], name="main")

    return make


def texts_of(graph: tr.Graph, program: tr.Program) -> dict[str, str]:
    result = {}
    with watch_passes(lambda record, text: result.update({record.name: text()})):
        compile_graph(graph, program)
    return result


def test_two_compilations_of_one_program_read_the_same(program):
    """The text of a program depends on nothing but the program."""
    assert texts_of(*program()) == texts_of(*program())


def test_every_pass_adds_to_the_text_of_the_one_before(program):
    """A later pass only appends its findings."""
    texts = list(texts_of(*program()).values())
    assert len(texts) == len(PASSES)
    for before, after in pairwise(texts):
        assert after.startswith(before)


def test_a_text_tells_what_was_lowered_and_found(program):
    """Variables, vertices, control flow, copies and liveness are in the text."""
    lines = [line.strip() for line in texts_of(*program())["emit"].splitlines()]
    for expected in (
        "'x' FLOAT [128] on tiles 0..3",
        "Touch: 4 vertices on tiles 0..3, 1 a tile",
        "loop begin 3 times, if none to L1",
        "execute 'main/work'",
        "copy 'main/Copy x' (z [128] → x [128])",
        "loop end to L0",
        "'z' always, 512 bytes",
    ):
        assert expected in lines


def test_a_small_change_changes_few_lines(program):
    """One more repetition differs in its own lines, and in no number of another section."""
    one, other = (texts_of(*program(n=n))["emit"].splitlines() for n in (3, 4))
    changed = [line for line in difflib.ndiff(one, other) if line[:2] in ("- ", "+ ")]
    assert 2 <= len(changed) <= 20
    assert not any("variables: 3" in line or "instructions" in line for line in changed)


def test_long_sections_say_what_they_leave_out(program, monkeypatch):
    """A section that is cut says how many lines are missing."""
    monkeypatch.setattr(text, "MAX_LINES", 2)
    lowered = texts_of(*program())["lower"]
    assert "  … and 1 more" in lowered.splitlines()


def test_the_dump_option_writes_a_file_for_each_pass(program, tmp_path: Path):
    """`tremula.dump` leaves the text after each pass, and a table of their times."""
    graph, sequence = program()
    compile_graph(graph, sequence, {"tremula.dump": str(tmp_path / "passes")})
    names = sorted(path.name for path in (tmp_path / "passes").glob("*.txt"))
    expected = [f"{i:03}-graph-{name}.txt" for i, (name, _) in enumerate(PASSES, start=1)]
    assert names == expected
    rows = (tmp_path / "passes" / "passes.tsv").read_text().splitlines()
    assert rows[0].startswith("number\tstage\tpass\tseconds")
    assert [row.split("\t")[2] for row in rows[1:]] == [name for name, _ in PASSES]
