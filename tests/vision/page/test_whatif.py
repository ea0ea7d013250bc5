"""The What-if view: its points are those of `tremula whatif`, served or in a file."""

import re

import pytest

from tests.vision.page.test_views import whole
from tests.vision.serve.test_server import ask
from tremula.commands import main
from tremula.vision.analysis.whatif import RecostableProgram, whatif_report
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.pack import unpack_pack
from tremula.vision.page_data.whatif import MOST_POINTS, name_of, ready_sweeps
from tremula.vision.report.reader import open_report
from tremula.vision.serve.export import export_page

slow = pytest.mark.slow
TWO = "clock_hz=925000000,1850000000,3700000000/sync_cycles=60,120"
SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from tests.vision.programs import summing_engine
engine = summing_engine()
engine.load().run()
"""


def asked(sweep: str) -> str:
    return "#/whatif?sweep=" + sweep.replace("=", "%3D").replace(",", "%2C").replace("/", "%2F")


# -- packs -----------------------------------------------------------------------------------------


def test_packs_hold_the_points(reader):
    """A sweep's pack holds what whatif_report says, the chip as it is first."""
    data = PageData([reader])
    facts, _ = unpack_pack(data.pack(f"0/whatif/{TWO}"))
    sweep = {"clock_hz": [925000000, 1850000000, 3700000000], "sync_cycles": [60, 120]}
    wanted = whatif_report(reader, None, sweep)
    assert facts["points"] == [point.as_dict() for point in wanted]
    first = facts["points"][0]
    parts = ("compute_cycles", "exchange_cycles", "sync_cycles", "waiting_cycles")
    assert sum(first[name] for name in parts) == reader.info["total_cycles"]


def test_ready_sweeps_are_possible(reader):
    """Every sweep that an export holds can be computed, and contains the chip's own value."""
    program = RecostableProgram(reader)
    sweeps = list(ready_sweeps(program.chip))
    assert len(sweeps) > 1
    for sweep in sweeps:
        assert all(getattr(program.chip, name) in values for name, values in sweep.items())
        points = list(program.sweep(sweep))
        own = [
            p for p in points if all(getattr(program.chip, n) == v for n, v in p.changes.items())
        ]
        assert [p.total_cycles for p in own] == [reader.info["total_cycles"]]


def just_enough(program: RecostableProgram) -> int:
    """Reserved bytes that leave the fullest tile exactly what it needs."""
    return program.chip.n_bytes_per_tile - program.as_reported().largest_tile_bytes


def test_memory_is_placed_again(reader):
    """A tile just large enough holds the program; with eight bytes less it does not."""
    program = RecostableProgram(reader)
    most = just_enough(program)
    enough, short = program.sweep({"n_bytes_reserved_per_tile": [most, most + 8]})
    assert enough.fits
    assert not short.fits
    assert short.overflowed_bytes == 8
    element = program.chip.n_bytes_memory_element
    (moved,) = program.sweep({"n_bytes_region0": [element]})
    assert moved.available_bytes == program.as_reported().available_bytes


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ("clock_hz=0", "expected more than zero"),
        ("clock_hz=nan", "is nan, expected a number up to 1e+12"),
        ("sync_cycles=1e300", "is 1e300, expected a number"),
        ("sync_cycles=1.5", "must be a whole number"),
        ("n_tiles=3", "n_tiles cannot change"),
        ("clok=3", "did you mean"),
        ("clock_hz=fast", "must be numbers"),
        ("clock_hz=" + ",".join(["1e9"] * (MOST_POINTS + 1)), f"at most {MOST_POINTS}"),
        ("clock_hz=1e9/sync_cycles=60/host_latency_s=1", "at most"),
        ("n_bytes_per_tile=100", "multiple of its memory"),
    ],
)  # fmt: skip
def test_sweeps_that_cannot_be(small_server, sweep, words):
    """A wrong sweep is refused with a reason, without a traceback; the token is needed too."""
    path = f"/data/0/whatif/{sweep}"
    status, _, body = ask(small_server, path, X_Tremula_Token=small_server.token)
    assert status == 404
    assert words in body.decode()
    assert "Traceback" not in body.decode()
    assert ask(small_server, path)[0] == 401


@pytest.mark.slow
def test_reports_without_a_tile_program(long_report):
    """A report that does not hold its program says why nothing can be varied."""
    with open_report(long_report) as reader:
        data = PageData([reader])
        facts, _ = unpack_pack(data.pack("0/whatif"))
        assert facts["sweeps"] == []
        assert "does not hold its tile program" in facts["why_not"]
        assert "0/whatif" in set(data.sweep_names(0))


# -- in a browser ----------------------------------------------------------------------------------


def table_cycles(page):
    cells = page.texts(selector=".results .rows .row")
    return [
        whole(row.split("\n")[4 if "B/cycle" in row or row.count("×") > 1 else 3]) for row in cells
    ]


@slow
def test_points_are_the_commands(page, reader):
    """The table has the cycles of every point; the words name the report's own."""
    page.show(hash=asked("sync_cycles=30,60,120"))
    wanted = whatif_report(reader, None, {"sync_cycles": [30, 60, 120]})
    assert table_cycles(page) == [point.total_cycles for point in wanted[1:]]
    assert f"{reader.info['total_cycles']:,} cycles" in page.text(selector=".answer")
    assert page.count(selector=".curves path.curve") == 3  # time, bytes needed, bytes there


@slow
def test_two_constants(page):
    """A second constant makes a curve of each of its values; it can be added and taken away."""
    page.show(hash=asked("clock_hz=1e9,2e9"))
    page.choose(selector="select[aria-label='Second constant']", value="sync_cycles")
    page.settle()
    assert "sync_cycles" in page.hash()
    assert (
        page.count(selector=".card:has(h2:text-is('Time of everything that ran')) path.curve") == 3
    )
    page.choose(selector="select[aria-label='Constant 2']", value="")
    page.settle()
    assert "sync_cycles" not in page.hash()


@slow
def test_sliders_and_values(page):
    """Sliders, moved with keys, and typed values change the sweep and the address."""
    page.show(hash=asked("clock_hz=1e9,2e9"))
    page.focus(selector="input[aria-label='clock_hz: values']")
    for _ in range(3):
        page.press(key="ArrowRight")
    page.settle()
    n_values = len(re.search(r"clock_hz%3D([^&]*)", page.hash())[1].split("%2C"))
    assert n_values >= 5
    assert page.count(selector=".results .rows .row") == n_values
    page.fill(selector="input[aria-label='Values of clock_hz']", text="1e9, 3e9")
    page.press(key="Enter")
    page.settle()
    assert "clock_hz%3D1e9%2C3e9" in page.hash()
    page.choose(selector="select[aria-label='Constant 1']", value="n_bytes_per_tile")
    page.settle()
    assert "n_bytes_per_tile" in page.hash()
    assert "memory of a tile" in page.text(selector=".constant .about")


@slow
def test_what_does_not_fit(page, reader):
    """Points that do not fit are marked, counted in the text, and red in the table."""
    most = just_enough(RecostableProgram(reader))
    page.show(hash=asked(f"n_bytes_reserved_per_tile={most},{most + 8}"))
    assert "1 of 2 points does not fit" in page.text(selector=".answer")
    assert page.count(selector=".curves circle.bad") == 2
    assert page.texts(selector=".results .cell.bad") == ["no"]


@slow
def test_curves_by_keyboard(page):
    """Arrows walk through a curve's points and tell each; Enter selects it everywhere."""
    page.show(hash=asked("clock_hz=1e9,2e9,4e9"))
    page.focus(selector=".curves[tabindex='0']")
    page.press(key="ArrowRight")
    page.press(key="ArrowRight")
    assert page.text(selector=".bubble").startswith("clock_hz 2.00 GHz")
    page.press(key="Enter")
    page.settle()
    assert "row=1" in page.hash()
    assert page.count(selector=".results .row[aria-selected='true']") == 1
    label = page.attribute(selector=".curves", name="aria-label")
    assert label.startswith("Time of everything that ran over clock_hz. 1.00 GHz: ")


@slow
def test_mistakes_are_told(browser, small_server):
    """An impossible value is reported on the page; correcting it brings the curves back."""
    browser.open(url=small_server.url)
    browser.show(hash=asked("clock_hz=0"))
    assert "expected more than zero" in browser.text(selector=".failure")
    browser.fill(selector="input[aria-label='Values of clock_hz']", text="1e9")
    browser.press(key="Enter")
    browser.settle()
    assert browser.count(selector=".failure") == 0


@slow
def test_export_holds_sweeps(browser, reader, tmp_path):
    """A file without a server shows its sweeps, and says that there are no others."""
    export_page(PageData([reader]), tmp_path / "page.html")
    browser.open(url=(tmp_path / "page.html").as_uri(), offline=True)
    sweeps = [name_of(sweep) for sweep in ready_sweeps(RecostableProgram(reader).chip)]
    browser.show(hash="#/whatif")
    browser.choose(selector="select[aria-label='Sweep']", value=sweeps[1])
    browser.settle()
    assert browser.texts(selector=".results .head .cell")[0] == "sync_cycles"
    assert "tremula view" in browser.text(selector=".sweep")
    browser.show(hash=asked("clock_hz=123"))
    assert "not in the exported file" in browser.text(selector=".failure")
    assert browser.problems() == []


@slow
def test_points_of_a_script(browser, repository, tmp_path, capsys):
    """`tremula whatif script.py --html` leaves a page of what the script took on each chip."""
    script, page = tmp_path / "script.py", tmp_path / "curves.html"
    script.write_text(SCRIPT.format(root=str(repository)))
    assert main(["whatif", str(script), "--sweep", "tiles=2,4,8", "--html", str(page)]) == 0
    printed = [whole(line.split()[1]) for line in capsys.readouterr().out.splitlines()[1:]]
    browser.open(url=page.as_uri(), offline=True)
    browser.settle()
    assert browser.texts(selector=".rail a") == ["What if"]
    assert table_cycles(browser) == printed
    assert "script.py" in browser.text(selector=".report")
    assert browser.problems() == []
