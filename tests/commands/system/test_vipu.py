"""`vipu` and the device tools, against a controller that serves."""

import json
import sys
from types import SimpleNamespace

import pytest

from tests.system.conftest import admin, controller  # noqa: F401 - fixtures
from tremula.commands import main
from tremula.commands.system import scripts


@pytest.fixture
def run(admin, monkeypatch, tmp_path, capsys):  # noqa: F811
    """Runs a command line as the administrator, in a separate home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VIPU_CLI_API_PORT", str(admin.port))
    monkeypatch.setenv("VIPU_CLI_API_ACCESS_KEY", admin.key)

    def run(line):
        code = main(line.split())
        printed = capsys.readouterr()
        return SimpleNamespace(code=code, out=printed.out, err=printed.err)

    return run


def test_a_partition_from_its_creation_to_its_end(run, tmp_path):
    """Its files are there for programs, and gone with it."""
    made = run("vipu create partition p1 --size 4 --gcds 2")
    files = sorted((tmp_path / ".ipuof.conf.d").iterdir())
    assert [file.name for file in files] == ["p1_gcd0.conf", "p1_gcd1.conf"]
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    assert f"export IPUOF_CONFIG_PATH={files[1]}" in made.out
    assert json.loads(run("vipu list partitions --json").out)[0]["name"] == "p1"
    shown = run("vipu get partition p1").out
    assert "GCD 1: IPUs 2–3" in shown
    assert "GS1.1 2+2" in shown
    assert run("vipu remove partition p1").code == 0
    assert not list((tmp_path / ".ipuof.conf.d").iterdir())


def test_refusals_are_told_in_words(run):
    """The controller's text, its hint, and an exit code; no traceback."""
    refused = run("vipu create partition p1 --size 3")
    assert refused.code == 1
    assert refused.err.startswith("error: a partition of 3 IPUs cannot be cut.\n  try: use 1, 2, 4")
    missing = run("vipu --api-port 1 list partitions")
    assert "does not answer" in missing.err
    assert "vipu-server" in missing.err


def test_administration(run, tmp_path):
    """Users get keys in files, allocations machines; both can be removed."""
    file = tmp_path / "ann.hcl"
    assert run(f"vipu create user ann --max-ipus 8 --output {file}").code == 0
    assert run("vipu create allocation lab --cluster cl0 --agents cl0-ag04 --users ann").code == 0
    assert "lab" in run(f"vipu --config {file} list allocations").out
    assert run("vipu create user bob").out.count("=") == 4
    assert run("vipu grant lab bob").code == 0
    assert "ann,bob" in run("vipu list allocations").out
    assert "did you mean" in run("vipu create allocation x --cluster cl0 --agents cl0-ag4").err
    for thing in ("allocation lab", "user ann", "user bob"):
        assert run(f"vipu remove {thing}").code == 0
    assert "create user" in run("vipu list audit").out


def test_faults_by_hand(run):
    """Injected, listed, seen in the partition, cleared."""
    run("vipu create partition p1 --size 2")
    assert run("vipu inject link 0 1").out == "fault 1: the IPU-Link between IPU 0 and 1 is down\n"
    assert "PS_ERROR" in run("vipu list partitions").out
    assert "IPU-Link between" in run("vipu list faults").out
    assert run("vipu clear 1").code == 0
    assert "PS_ACTIVE" in run("vipu list partitions").out
    assert run("vipu inject reset 0").out == "IPU 0 was reset\n"
    assert run("vipu reset partition p1").code == 0


@pytest.mark.slow
def test_device_tools_show_the_partition(run, monkeypatch, tmp_path):
    """gc-info, gc-inventory, gc-monitor: as text and as JSON, with Poplar's numbers of devices."""
    run("vipu create partition p1 --size 4 --reconfigurable")
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(tmp_path / ".ipuof.conf.d" / "p1_gcd0.conf"))
    devices = json.loads(run("system info -l -j").out)
    assert [device["ipus"] for device in devices][4:] == [[0, 1], [2, 3], [0, 1, 2, 3]]
    assert run("system info -d 6 --ipu-count").out == "number of IPUs: 4\n"
    assert run("system info -d 7").code == 1
    assert "-+- Id: [4], target: [Multi IPU]" in run("system info -l").out
    attributes = json.loads(run("system inventory -j").out)["devices"]
    assert [a["ipu power"] for a in attributes] == ["105.0 W"] * 4
    assert "Partition: p1 [active] has 4 reconfigurable IPUs" in run("system monitor").out
    assert len(json.loads(run("system monitor -j").out)["cards"]) == 4
    assert "p1" in run("system monitor --all-partitions").out
    assert run("system reset").code == 0
    assert "are not attached" not in run("system memorytest --tiles 4").out


@pytest.mark.slow
def test_tools_without_a_controller(monkeypatch, capsys):
    """They show an idle Pod16, and tests run on it, each judged by the chip's figures."""
    for name, expected in (
        ("memorytest", 0), ("exchangetest", 4.0), ("powertest", 425.0), ("iputraffic", 55.04),
    ):  # fmt: skip
        assert main(["system", name, "--tiles", "64", "-j"]) == 0, capsys.readouterr().out
        assert json.loads(capsys.readouterr().out)["figure"] == expected
    monkeypatch.setattr(sys, "argv", ["gc-info", "-l", "-j"])
    assert scripts.gc_tool() == 0
    assert len(json.loads(capsys.readouterr().out)) == 31
