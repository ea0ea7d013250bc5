"""PopRun: who is where, what processes are told, and what happens when one fails."""

import signal
import subprocess
import sys

import pytest

from tremula.base.errors import InvalidOption
from tremula.commands import main
from tremula.system.launch.launching import InstanceLaunch, launch, remote_command
from tremula.system.launch.topology import Topology, expand_hosts


def poprun(words, script, folder):
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    return main(["poprun", *words.split(), str(path)])


def test_hosts_are_expanded():
    """As PopRun writes them: ranges and lists in brackets, zeros kept."""
    assert expand_hosts("node[0-2,4],gw") == ("node0", "node1", "node2", "node4", "gw")
    assert expand_hosts("n[08-10].lab") == ("n08.lab", "n09.lab", "n10.lab")
    for wrong in ("", "n[2-1]", "-oProxyCommand=x", "a b", "n[x]"):
        with pytest.raises(InvalidOption):
            expand_hosts(wrong)


def test_a_topology_shares_out_evenly():
    """Instances over hosts, replicas over instances; what does not fit is refused."""
    topology = Topology(("a", "b"), 4, 8, 2, n_ilds=2)
    assert [topology.host_of(i) for i in range(4)] == ["a", "a", "b", "b"]
    third = topology.environment(3)
    assert (third["RANK"], third["LOCAL_RANK"], third["POPDIST_LOCAL_INSTANCE_INDEX"]) == (
        "3", "1", "1"
    )  # fmt: skip
    assert third["POPDIST_REPLICA_INDEX_OFFSET"] == "6"
    assert topology.table().splitlines()[3].split() == ["b", "1", "2", "4–5", "8–11"]
    for wrong in ((("a",), 3, 8, 1), (("a", "b"), 3, 3, 1), (("a",), 4, 2, 1)):
        with pytest.raises(InvalidOption, match="cannot be split across"):
            Topology(*wrong)


def test_instances_know_who_they_are(tmp_path, capfd):
    """Every line has its instance; popdist reads the environment."""
    script = "import popdist\nprint(popdist.getInstanceIndex(), popdist.getNumTotalReplicas())\n"
    assert poprun("--num-instances 3 --num-replicas 6", script, tmp_path) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] 0 6", "[1] 1 6", "[2] 2 6"]
    words = "--num-instances 2 --only-output-from-instance 1"
    assert poprun(words, "import os\nprint(os.environ['RANK'])", tmp_path) == 0
    assert capfd.readouterr().out == "1\n"


def test_one_failure_ends_all(tmp_path, capfd):
    """The others are stopped at once, the failed one's last lines and code are shown."""
    script = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1':\n    sys.exit('out of luck')\n"
        "time.sleep(60)\n"
    )
    words = f"--num-instances 3 --only-output-from-instance 0 --output-folder {tmp_path}/logs"
    assert poprun(words, script, tmp_path) == 1
    errors = capfd.readouterr().err
    assert "error: instance 1 of 3 failed with exit code 1; the others were stopped" in errors
    assert "[1] out of luck" in errors
    assert (tmp_path / "logs" / "instance1.log").read_text() == "out of luck\n"


def test_a_restart_goes_on_from_the_last_checkpoint(tmp_path, capfd):
    """An instance that dies once: all start again, and do only what was left to do."""
    script = (
        "import os, pathlib, sys\n"
        f"kept = pathlib.Path({str(tmp_path)!r}) / ('kept' + os.environ['RANK'])\n"
        "step = int(kept.read_text()) if kept.exists() else 0\n"
        "while step < 4:\n"
        "    if step == 2 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os._exit(7)\n"
        "    step += 1; kept.write_text(str(step)); print('step', step)\n"
    )
    assert poprun("--num-instances 2 --max-restarts 1", script, tmp_path) == 0
    printed = capfd.readouterr()
    assert printed.out.count("step 4") == 2
    # A line may be lost when its instance is ended after another's death, but none comes twice.
    lines = printed.out.splitlines()
    assert len(lines) == len(set(lines))
    assert "step 1" in printed.out
    assert "exit code 7; all are started again (1 left)" in printed.err
    (tmp_path / "kept0").unlink()
    assert poprun("--num-instances 1", script, tmp_path) == 7


@pytest.mark.slow
def test_instances_get_domains_of_a_partition(admin, tmp_path, capfd, monkeypatch):
    """A partition is made for the run, each instance attaches to its own domain, and it goes."""
    monkeypatch.setenv("VIPU_CLI_API_PORT", str(admin.port))
    monkeypatch.setenv("VIPU_CLI_API_ACCESS_KEY", admin.key)
    script = (
        "import tremula as tr\n"
        "device = tr.DeviceManager().acquire_available_device(2)\n"
        "print(device.lease.ipus)\n"
        "device.detach()\n"
    )
    words = "--num-instances 2 --ipus-per-replica 2 --vipu-partition job"
    assert poprun(words, script, tmp_path) == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == ["[0] (0, 1)", "[1] (2, 3)"]
    assert admin.get("partitions") == []
    admin.post("partitions", name="job", size=8)
    assert poprun(words, script, tmp_path) == 1
    assert "--update-partition 1 creates it again" in capfd.readouterr().err


def test_options_in_a_file(tmp_path, capfd):
    """Exported options can be imported; the command line wins."""
    file = tmp_path / "options.json"
    assert main(["poprun", "--num-instances", "2", "--export-config", str(file)]) == 0
    script = "print('here')"
    assert poprun(f"--import-config {file}", script, tmp_path) == 0
    assert capfd.readouterr().out.count("here") == 2
    assert poprun(f"--import-config {file} --num-instances 3", script, tmp_path) == 0
    assert capfd.readouterr().out.count("here") == 3


def test_other_hosts_are_reached_by_ssh():
    """The command that would run there: same folder, variables quoted, no options from names."""
    line = remote_command("node1", ["python", "a b.py"], {"RANK": "1", "X": "$(reboot)"})
    assert line[:2] == ["ssh", "-o"]
    assert line[-2] == "node1"
    assert line[-1].endswith("exec env RANK=1 'X=$(reboot)' python 'a b.py'")


def test_cores_can_be_shared_out():
    """With --numa-aware each instance has dedicated cores, as far as there are enough."""
    script = "import os; print(sorted(os.sched_getaffinity(0)))"
    wanted = InstanceLaunch(
        Topology(("localhost",), 2, 2, 1), [sys.executable, "-c", script], is_numa_aware=True
    )
    assert launch(wanted) == 0


@pytest.mark.slow
def test_a_polite_end_removes_the_partition(admin, tmp_path, monkeypatch):
    """SIGTERM to poprun, as Kubernetes sends it: instances end, the partition is gone."""
    monkeypatch.setenv("VIPU_CLI_API_PORT", str(admin.port))
    monkeypatch.setenv("VIPU_CLI_API_ACCESS_KEY", admin.key)
    script = tmp_path / "wait.py"
    script.write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    line = ["-m", "tremula.commands", "poprun", "--vipu-partition", "job", str(script)]
    process = subprocess.Popen([sys.executable, *line], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    assert [p["name"] for p in admin.get("partitions")] == ["job"]
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM
    process.stdout.close()
    assert admin.get("partitions") == []
