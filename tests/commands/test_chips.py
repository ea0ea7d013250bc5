"""`tremula chips`, and the page that documents it."""

import doctest
import json
import re
from pathlib import Path

import pytest

from tremula.commands import main
from tremula.hardware import CHIPS, SYSTEMS, chip_model, known_chips, known_systems, load_chip

PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"


def test_overview_names_everything(capsys):
    """Without a name, every chip and system has a line, none wider than 100 columns."""
    assert main(["chips"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^bow +ipu2 +1,472 +6 +624 +1\.85 +348\.6 +–$", out, re.MULTILINE)
    assert {line.split()[0] for line in out.splitlines() if line} >= {*CHIPS, *SYSTEMS}
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("name", [*CHIPS, *SYSTEMS])
def test_details_show_every_constant(name, capsys):
    """With a name, each constant is shown with unit, provenance and source within 100 columns."""
    assert main(["chips", name.upper()]) == 0
    out = capsys.readouterr().out
    machine = CHIPS.get(name) or SYSTEMS[name]
    text = " ".join(out.split())
    for key, fact in machine.facts.items():
        assert re.search(
            rf"^  {key} .*{re.escape(fact.unit)}  {fact.provenance}$", out, re.MULTILINE
        )
        assert f"[{fact.source}]" in text
    assert max(map(len, out.splitlines())) <= 100


def test_json(capsys):
    """`--json` gives the same facts for programs."""
    assert main(["chips", "bow", "--json"]) == 0
    bow = json.loads(capsys.readouterr().out)
    assert bow["facts"]["n_tiles"]["value"] == 1472
    assert bow["facts"]["clock_hz"]["unit"] == "Hz"
    assert main(["chips", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)
    assert set(everything["chips"]) == set(CHIPS)
    assert everything["systems"]["pod16"]["chip"] == "Bow"


def test_an_unknown_name_suggests_the_nearest(capsys):
    """A misspelt name is answered with the nearest one."""
    assert main(["chips", "pod17"]) == 1
    assert "no chip or system 'pod17'.\n  try: did you mean 'pod16'" in capsys.readouterr().err


def test_the_page_tells_the_truth(tmp_path, monkeypatch, capsys):
    """Every example of docs/hardware.md runs, its chip file included."""
    text = PAGE.read_text(encoding="utf-8")
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(example, {})
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text(toml, encoding="utf-8")
    mine = load_chip("my.toml")
    assert (mine.name, mine.n_tiles, mine.clock_hz, mine.sync_cycles) == ("Big Bow", 2944, 2e9, 150)
    assert mine.facts["sync_cycles"].source == "twice the distance"
    assert main(["chips", "my.toml"]) == 0
    out = capsys.readouterr().out
    assert "[twice the distance]" in out
    assert "3 yours" not in out
    assert "2 yours" in out


@pytest.mark.parametrize("module", [chip_model, known_chips, known_systems])
def test_docstrings_tell_the_truth(module):
    """The examples in docstrings give what they say."""
    result = doctest.testmod(module)
    assert (result.attempted > 0, result.failed) == (True, 0)
