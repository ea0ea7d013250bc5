"""Views, advice, comparison, budgets and what-if, from Python and on the command line."""

import json
import subprocess
import sys
import zlib

import numpy as np
import pytest

import tremula as tr
from tests.vision.programs import summing_engine
from tremula.base.errors import FileLoadError, InvalidOption, MissingProfileData
from tremula.commands import main
from tremula.compiler.report.recost import steps_of
from tremula.hardware import chip, save_chip
from tremula.vision.analysis.budget import check_budget, load_budget
from tremula.vision.analysis.compare import align, compare
from tremula.vision.analysis.curves import draw_curves, png
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.summary import VIEWS
from tremula.vision.analysis.traffic import traffic
from tremula.vision.analysis.whatif import parse_sweep, recosted, whatif_report
from tremula.vision.page_data.fetch import stamp
from tremula.vision.report.reader import open_report
from tremula.vision.report.time_totals import PARTS, PHASES
from tremula.vision.report.write import report_of_engine

SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from tests.vision.programs import summing_engine
engine = summing_engine()
engine.load().run()
"""


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_prints_text_and_json(view, report_file, capsys):
    """`tremula report` prints each view, and the same facts as JSON."""
    assert main(["report", str(report_file), view]) == 0
    assert capsys.readouterr().out.strip()
    assert main(["report", str(report_file.parent), view, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_one_tile_in_text(report_file, capsys):
    """`memory --tile` lists what a tile holds, largest first."""
    assert main(["report", str(report_file), "memory", "--tile", "3"]) == 0
    text = capsys.readouterr().out
    assert "Tile 3: " in text
    assert "weights/matrix" in text


def test_liveness_says_what_would_free_the_peak(report):
    """Without the variable that frees most, the largest step needs so much less."""
    result = VIEWS["liveness"](report)
    totals = next(v for v in result["live_at_peak"] if v["name"] == "layer1/totals")
    assert 0 < totals["frees"] <= totals["n_bytes"]
    assert result["peak_temporary_bytes"] == max(result["temporary"])


def test_advice_is_ranked_and_linked(report):
    """Each piece has evidence, a view and what it saves; what saves most of the time is first."""
    result = insights(report)
    rules = [i["rule"] for i in result]
    assert "small_steps" in rules
    assert all(i["text"] and i["view"] and isinstance(i["evidence"], dict) for i in result)
    saved = [i["saves_cycles"] for i in result if not i["saves_bytes"]]
    assert saved == sorted(saved, reverse=True)


def test_advice_on_uneven_work(tmp_path):
    """A tile with more memory or more vertices than the others is named."""
    for n_rows, n_columns, rule, key in (
        (9, 20_000, "uneven_memory", "tile"),
        (49, 2_000, "uneven_compute", "critical_tile"),
    ):
        engine = summing_engine(n_tiles=8, n_rows=n_rows, n_columns=n_columns).load()
        engine.run()
        with open_report(report_of_engine(engine, tmp_path)) as reader:
            result = {i["rule"]: i for i in insights(reader)}
        assert result[rule]["evidence"][key] == 0


def test_links_and_energy_of_two_chips(report, tmp_path, capsys):
    """The summary names the busiest link and has the joules; advice and comparison have them."""
    engine = summing_engine(n_ipus=2, n_tiles=4).load()
    engine.run()
    path = report_of_engine(engine, tmp_path)
    made = engine.report()
    assert main(["report", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"Busiest link: {made.links.bottleneck}" in said
    assert f"Energy: {made.energy.total:.4g} J" in said
    with open_report(path) as reader:
        (bound,) = [one for one in insights(reader) if one["rule"] == "link_bound"]
        assert f"The busiest link is {made.links.bottleneck}." in bound["text"]
        energy = compare(report, reader)["totals"]["energy_microjoules"]
        assert energy["after"] == round(1e6 * made.energy.total)
        assert whatif_report(reader, None, parse_sweep(["clock=1e9"]))[0].joules == pytest.approx(
            made.energy.total
        )


def test_alignment_by_name_and_place():
    """Equal names keep their order around an insertion; the rest is paired by name."""
    assert align(["a", "a", "b"], ["a", "x", "a", "b"]) == [(0, 0), (1, 2), (2, 3), (-1, 1)]
    assert align(["a", "b"], ["b", "a"]) in ([(0, 1), (1, 0)], [(0, 1), (1, 0), (-1, -1)])
    assert align([], ["a"]) == [(-1, 0)]


def test_comparing_says_the_causes(report_file, tmp_path, capsys):
    """Longer rows cost compute and bytes, in words; groups and phases add up to the difference."""
    engine = summing_engine(n_columns=64).load()
    engine.run()
    other = report_of_engine(engine, tmp_path)
    with open_report(report_file) as before, open_report(other) as after:
        result = compare(before, after)
        total = after.info["total_cycles"] - before.info["total_cycles"]
        assert compare(before, before)["causes"] == []
    assert result["totals"]["total_cycles"]["difference"] == total
    assert sum(row["cycles"]["difference"] for row in result["operations"]) == total
    assert sum(group["cycles"]["difference"] for group in result["groups"]) == total > 0
    assert sum(group[name]["difference"] for group in result["groups"] for name in PHASES) == total
    assert sum(result["totals"][name]["difference"] for name in PARTS) == total
    assert any("main/layer1/sums" in c and "compute" in c for c in result["causes"])
    assert any("weights/matrix, on 8 tiles" in c for c in result["causes"])
    assert main(["compare", str(report_file), str(other)]) == 0
    assert "Largest causes:" in capsys.readouterr().out
    assert main(["compare", str(report_file), str(other), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"] == result["totals"]


def test_budgets(report_file, tmp_path, capsys):
    """Exit code 1 and a line that says by how much; 0 if all holds."""
    budget = tmp_path / "budget.toml"
    budget.write_text(
        "total_cycles = 1_000\nlargest_tile_bytes = 600_000\nexchange_share = 1.0\n"
        '[operations]\n"main/*" = 1e9\n[categories]\nvertex_code = 1e6\n'
    )
    assert main(["check", str(report_file), "--budget", str(budget)]) == 1
    text = capsys.readouterr().out
    assert "OVER total_cycles: 1,500 of 1,000, 500 over" in text
    assert "ok   operations.main/*" in text
    budget.write_text("total_cycles = 1500\nbytes_exchanged = 1e9\nn_vertices = 24\n")
    assert main(["check", str(report_file), "--budget", str(budget), "--json"]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("total_cycle = 1", "did you mean 'total_cycles'"),
        ("total_cycles = 'many'", "must be a number"),
        ("total_cycles = nan", "must be a number"),
        ("", "the budget is empty"),
        ("[execution]\ntotal_cycles = 3", "its tables are .* stand above them"),
        ("operations = 3", "must be a table"),
        ("[operations]\nnothing = 3", "no operation matches 'nothing'"),
        ("[categories]\nvertexcode = 3", "did you mean 'vertex_code'"),
    ],
)
def test_budgets_that_make_no_sense(text, words, report, tmp_path):
    """Unknown names and impossible limits are readable errors."""
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(InvalidOption, match=words):
        check_budget(report, load_budget(path))


def test_budget_files_that_cannot_be_read(tmp_path):
    """A missing file and one that is not TOML."""
    with pytest.raises(FileLoadError, match="cannot read the budget"):
        load_budget(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(FileLoadError, match="is not TOML"):
        load_budget(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xfb\x00")
    with pytest.raises(FileLoadError, match="it is not text"):
        load_budget(tmp_path / "bad.toml")


def test_the_fixture(tremula_budget, engine, report_file, tmp_path):
    """`tremula_budget` takes engines and reports, and fails a test with the lines that are over."""
    tremula_budget(engine, total_cycles=1_500)
    tremula_budget(report_file, {"n_steps": 2})
    with pytest.raises(pytest.fail.Exception, match="OVER total_cycles"):
        tremula_budget(engine, total_cycles=1_499)
    with pytest.raises(InvalidOption, match="the budget is empty"):
        tremula_budget(engine)
    with pytest.raises(InvalidOption, match="an engine, a report or its path, got dict"):
        tremula_budget({}, total_cycles=1)


def branching_executable():
    """Two chips, a branch whose predicate crosses them, two streams that share a sync."""
    graph = tr.Graph(tr.IPUModel("bow", n_ipus=2, tiles_per_ipu=4).create_device())
    x = graph.add_variable(tr.FLOAT, [100], "x", mapping="linear")
    y = graph.add_variable(tr.INT, [], "y", mapping="linear")
    streams = [graph.add_host_to_device_fifo(f"in{i}", tr.FLOAT, 100) for i in range(2)]
    copies = [tr.Copy(stream, x) for stream in streams]
    return tr.compile_graph(graph, [tr.Sequence([*copies, tr.If(y, copies[0], tr.Sequence())])])


def test_costing_again_on_the_same_chip_changes_nothing(report):
    """From the file's own program, and one with branches, every cost comes out as it was."""
    several = summing_engine(n_ipus=2, n_tiles=4).executable
    for executable in (report.executable(), several, branching_executable()):
        costs = recosted(executable, steps_of(executable), executable.target.chip)
        wanted = executable.analysis.costs
        for name in ("sync", "exchange", "link_exchange", "host_exchange", "compute", "joins"):
            assert np.array_equal(getattr(costs, name), getattr(wanted, name)), name


def test_what_if_from_a_report(report_file, tmp_path, capsys):
    """Twice the clock is half the time; less sync is fewer cycles; the curve is a PNG."""
    arguments = ["whatif", str(report_file), "--sweep", "clock=1.85e9,3.7e9", "sync=60,120"]
    assert main([*arguments, "--png", str(tmp_path / "curve.png")]) == 0
    assert "as reported" in capsys.readouterr().out
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    with open_report(report_file) as report:
        points = whatif_report(report, None, parse_sweep(["clock=1.85e9,3.7e9 sync=60,120"]))
        by = {(p.changes.get("clock_hz"), p.changes.get("sync_cycles")): p for p in points}
        slow, fast = by[1.85e9, 120], by[3.7e9, 120]
        assert fast.microseconds == pytest.approx(slow.microseconds / 2)
        assert by[3.7e9, 60].total_cycles < fast.total_cycles
        assert points[0].total_cycles == report.info["total_cycles"]
        tight = whatif_report(report, None, {"n_bytes_per_tile": [2**15]})[1]
        assert tight.available_bytes < 2**15


@pytest.mark.slow
def test_what_if_in_a_process_of_its_own(report_file):
    """The tile program of a report is read where nothing was compiled before."""
    command = [sys.executable, "-m", "tremula.commands", "whatif", str(report_file)]
    done = subprocess.run(
        [*command, "--sweep", "sync=60"], capture_output=True, text=True, check=True
    )
    assert "sync_cycles=60" in done.stdout


def test_what_a_report_cannot_tell(report, tmp_path, capsys):
    """Tiles and workers need the script; nonsense in a sweep is named."""
    with pytest.raises(MissingProfileData, match="n_tiles cannot change"):
        whatif_report(report, None, {"n_tiles": [4]})
    with pytest.raises(InvalidOption, match="nothing to vary"):
        whatif_report(report, None, {})
    with pytest.raises(InvalidOption, match="cannot read the sweep 'tile=3'"):
        parse_sweep(["tile=3"])
    with pytest.raises(InvalidOption, match="must be numbers"):
        parse_sweep(["tiles=many"])
    assert main(["whatif", str(tmp_path / "none")]) == 1
    assert "there is no" in capsys.readouterr().err


@pytest.mark.slow
def test_what_if_from_a_script(repository, tmp_path, capsys):
    """The script runs once per chip, each time building for as many tiles as the sweep says."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=str(repository)))
    assert main(["whatif", str(script), "--sweep", "tiles=2,4,8", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)
    assert [p["changes"]["n_tiles"] for p in points] == [2, 4, 8]
    cycles = [p["total_cycles"] for p in points]
    assert cycles[0] > max(cycles[1:])


@pytest.mark.slow
def test_scripts_that_choose_their_own_target(repository, tmp_path, capsys):
    """Devices of a manager follow the sweep; a target made by hand does not, and that is said."""
    lines = (
        "import tremula as tr",
        "graph = tr.Graph({device})",
        "x = graph.add_variable(tr.FLOAT, [8], 'x', mapping='linear')",
        "graph.create_host_read('x', x)",
        "tr.Engine(graph, [tr.WriteUndef(x)]).load().run()",
    )
    script = tmp_path / "script.py"
    script.write_text("\n".join(lines).format(device="tr.DeviceManager().get_devices()[0]"))
    assert main(["whatif", str(script), "--sweep", "clock=1e9,2e9"]) == 0
    assert "clock_hz=2e+09" in capsys.readouterr().out
    script.write_text("\n".join(lines).format(device="tr.Device(tr.Target(tr.chip('bow')))"))
    assert main(["whatif", str(script), "--sweep", "clock=1e9,2e9"]) == 1
    assert "took no notice of clock_hz" in capsys.readouterr().err


def test_what_if_with_a_chip_of_ones_own(report_file, tmp_path, capsys):
    """--chip reads a TOML file."""
    save_chip(chip("bow").replace(name="mine", sync_cycles=12), tmp_path / "mine.toml")
    assert main(["whatif", str(report_file), "--chip", str(tmp_path / "mine.toml")]) == 0
    assert "mine" in capsys.readouterr().out


@pytest.mark.slow
def test_run_leaves_a_report(repository, tmp_path, capsys):
    """`tremula run --report DIR script.py` writes DIR/profile.pop."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=str(repository)))
    assert main(["run", "--report", str(tmp_path / "r"), str(script)]) == 0
    assert "profile.pop" in capsys.readouterr().err
    with open_report(tmp_path / "r") as reader:
        assert reader.info["total_cycles"] == 1_500


def test_png_is_a_png():
    """Signature, size and end of a file."""
    data = png(np.zeros((2, 3, 3), np.uint8))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[16:24] == (3).to_bytes(4) + (2).to_bytes(4)
    assert data.endswith(b"IEND\xaeB`\x82")


@pytest.mark.slow
def test_a_folder_of_several_reports(report_file, tmp_path, capsys):
    """Reports one folder deeper are named; so are those that a run has left."""
    for name in ("training", "inference"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "profile.pop").write_bytes(report_file.read_bytes())
    assert main(["report", str(tmp_path)]) == 1
    assert f"has reports in {tmp_path / 'inference'}, {tmp_path / 'training'}" in (
        capsys.readouterr().err
    )
    script = tmp_path / "script.py"
    script.write_text("print('no engine')\n")
    assert main(["run", "--report", str(tmp_path), str(script)]) == 0
    message = capsys.readouterr().err
    assert f"no report in {tmp_path}: the script ran no engine and no model" in message


def test_a_folder_with_one_report_below_it(report_file, tmp_path, capsys):
    """`tremula run --report DIR` of one model makes DIR/inference: DIR is enough to open it."""
    (tmp_path / "inference").mkdir()
    (tmp_path / "inference" / "profile.pop").write_bytes(report_file.read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    assert "cycles" in capsys.readouterr().out
    assert stamp(tmp_path) == stamp(tmp_path / "inference")


def test_options_may_come_first(report_file, capsys):
    """Options may stand between the arguments of a command."""
    assert main(["report", str(report_file), "--json", "ops"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cycles"] > 0


@pytest.mark.slow
def test_curves_have_colours_of_their_own(tmp_path):
    """Two curves are drawn in two colours, besides ink, grid and paper."""
    path = draw_curves(tmp_path / "curves.png", [([1, 2, 4], [3, 2, 1]), ([1, 2, 4], [6, 5, 4])])
    data = path.read_bytes()
    width, height = (int.from_bytes(data[at : at + 4]) for at in (16, 20))
    rows = zlib.decompress(data[data.index(b"IDAT") + 4 : -16])
    pixels = np.frombuffer(rows, np.uint8).reshape(height, 1 + 3 * width)[:, 1:].reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) == 5


def test_traffic_of_steps_adds_up_to_that_of_the_run(report):
    """Routes are listed busiest first; each step, as often as it ran, makes up the whole."""
    whole = VIEWS["traffic"](report)
    n_bytes = [route["n_bytes"] for route in whole["routes"]]
    assert n_bytes == sorted(n_bytes, reverse=True)
    assert sum(n_bytes) == whole["n_bytes"] > 0
    executed = report.table("steps")["executed"].tolist()
    of_steps = [traffic(report, step)["n_bytes"] * n for step, n in enumerate(executed)]
    assert sum(of_steps) == whole["n_bytes"]
    with pytest.raises(MissingProfileData, match="step 999 does not exist"):
        traffic(report, 999)
