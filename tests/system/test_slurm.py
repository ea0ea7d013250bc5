"""A real Slurm of one node: jobs get partitions, and give them back however they end."""

import os
import shutil
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from tremula.system.web.server import listening_socket

FOLDER = files("tremula.system") / "cluster" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
pytestmark = pytest.mark.slow

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 Gres=ipu:16
PartitionName=all Nodes={host} Default=YES OverSubscribe=YES
"""
JOB = """#!/bin/sh
#SBATCH --output={folder}/job-%j.out
{python} - <<'END'
import os, tremula as tr
device = tr.DeviceManager().acquire_available_device(2)
print(os.environ["IPUOF_VIPU_PARTITION"], tr.DeviceManager().system.n_ipus, device.driver_ids)
device.detach()
END
"""


def why_not():
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (apt-get install slurm-wlm)"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root"


def free_port():
    with listening_socket("127.0.0.1", 0) as made:
        return made.getsockname()[1]


class Slurm:
    """A cluster of this computer, in a folder."""

    def __init__(self, folder: Path, admin):
        self.folder, self.environment = folder, {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
        self._write_config(admin)
        self._processes = []
        socket_path = f"{folder}/munge.socket"
        self._start(
            "munged", "--foreground", "--force", f"--socket={socket_path}",
            f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        self._wait(lambda: Path(socket_path).exists())
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        self._wait(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"))

    def _write_config(self, admin):
        folder, host = self.folder, socket.gethostname()
        for name in ("state", "spool", "bin"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for file in FOLDER.iterdir():
            shutil.copy(str(file), folder / file.name)
        ours = (folder / "slurm-ipu.conf").read_text().replace("/etc/slurm", str(folder))
        ports = {"ctld_port": free_port(), "slurmd_port": free_port()}
        text = CONFIG.format(folder=folder, host=host, **ports) + ours
        (folder / "slurm.conf").write_text(text)
        keys = {"api-host": admin.host, "api-port": str(admin.port), "api-access-key": admin.key}
        lines = "".join(f'{name} = "{value}"\n' for name, value in keys.items())
        (folder / "vipu-cli.hcl").write_text(lines)
        vipu = folder / "bin" / "vipu"
        code = (
            "from tremula.commands import main; import sys; sys.exit(main(['vipu', *sys.argv[1:]]))"
        )
        vipu.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
        vipu.chmod(0o755)
        variables = {
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "VIPU_CLI_CONFIG": f"{folder}/vipu-cli.hcl",
            "IPU_SPOOL": f"{folder}/ipu-spool",
            "SLURM_CONF": f"{folder}/slurm.conf",
        }
        exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        (folder / "ipu.env").write_text(exports)

    def _start(self, *command):
        with (self.folder / f"{command[0]}.out").open("wb") as out:
            process = subprocess.Popen(command, env=self.environment, stdout=out, stderr=out)
        self._processes.append(process)

    def _wait(self, condition, seconds=120):
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, self._logs()
            time.sleep(0.1)

    def _logs(self):
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*.out")]
        return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')[-1500:]}" for p in logs)

    def ask(self, *command):
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout

    def submit(self, script, *options):
        path = self.folder / "job.sh"
        path.write_text(script)
        number = self.ask("sbatch", "--parsable", *options, str(path)).strip()
        assert number, self._logs()
        return number

    def wait_for(self, job):
        self._wait(lambda: job not in self.ask("squeue", "-h", "-o", "%i").split())
        self._wait(lambda: "COMPLETING" not in self.ask("scontrol", "show", "job", job))

    def wait(self, condition):
        self._wait(condition)

    def close(self):
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(20)


@pytest.fixture
def slurm(admin, tmp_path):
    why = why_not()
    if why:
        pytest.skip(why)
    made = Slurm(tmp_path, admin)
    yield made
    made.close()


def test_jobs_get_partitions(slurm, admin):
    """A job finds the IPUs it asked for; they are free afterwards, also after `scancel`."""
    job = slurm.submit(JOB.format(folder=slurm.folder, python=sys.executable), "--gres=ipu:3")
    slurm.wait_for(job)
    out = slurm.folder / f"job-{job}.out"
    assert out.read_text() == f"p{job} 4 [0, 1]\n", slurm._logs()
    slurm.wait(lambda: admin.get("partitions") == [])
    sleeping = slurm.submit("#!/bin/sh\nsleep 60\n", "--gres=ipu:8", "--output=/dev/null")
    slurm.wait(lambda: [p["name"] for p in admin.get("partitions")] == [f"p{sleeping}"])
    assert "16" in slurm.ask("scontrol", "show", "node")
    slurm.ask("scancel", sleeping)
    slurm.wait(lambda: admin.get("partitions") == [])
    plain = slurm.submit("#!/bin/sh\ntrue\n", "--output=/dev/null")
    slurm.wait_for(plain)
    assert "idle" in slurm.ask("sinfo", "-h", "-o", "%t")
    log = [row["action"] for row in admin.get("audit")]
    assert log.count("create partition") == log.count("remove partition") == 2
