"""`tremula launch`: a script in several processes that know of each other."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tremula.commands import main
from tremula.commands.system import launch

ENVIRONMENT = """
import os, sys
folder, *arguments = sys.argv[1:]
names = "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_SIZE"
names += " OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE RANK MASTER_PORT OMP_NUM_THREADS"
words = [__name__, *arguments, *(name + "=" + os.environ[name] for name in names.split())]
with open(os.path.join(folder, os.environ["RANK"]), "w") as file:
    file.write(" ".join(words))
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Makes a script. The threads per process are fixed, so that nothing is left behind."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def make(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return make


@pytest.mark.slow
def test_each_process_knows_its_place(script, tmp_path):
    """Every process is the script, with its arguments and MPI's and torchrun's variables."""
    folder = tmp_path / "out"
    folder.mkdir()
    command = [script(ENVIRONMENT), str(folder), "--size", "3"]
    assert main(["launch", "--nproc", "2", *command]) == 0
    texts = [path.read_text().split() for path in sorted(folder.iterdir())]
    assert len(texts) == 2
    assert texts[0][-2] == texts[1][-2]  # they meet at the same port
    for rank, words in enumerate(texts):
        assert words[:3] == ["__main__", "--size", "3"]
        assert {
            "OMPI_COMM_WORLD_SIZE=2",
            f"OMPI_COMM_WORLD_RANK={rank}",
            "OMPI_COMM_WORLD_LOCAL_SIZE=2",
            f"OMPI_COMM_WORLD_LOCAL_RANK={rank}",
            "WORLD_SIZE=2",
            f"RANK={rank}",
        } <= set(words)


def test_a_separator_before_the_script(script, monkeypatch):
    """With `--` before it, a script is started with exactly the arguments it has without."""
    started = []
    for separator in ([], ["--"]):
        seen = {}
        monkeypatch.setitem(sys.modules, "torch.distributed.run", _Recorder(seen))
        assert main(["launch", "--nproc", "2", *separator, script(""), "--size", "3"]) == 0
        started.append(seen["arguments"])
    assert started[0] == started[1]
    assert started[0][-3:] == [script(""), "--size", "3"]


@pytest.mark.slow
def test_a_failing_process_is_named(script, capfd):
    """One line says which process failed and how; its exit code is the command's."""
    path = script("import os, sys\nsys.exit(3 if os.environ['RANK'] == '1' else 0)\n")
    assert main(["launch", "--nproc", "2", path]) == 3
    assert capfd.readouterr().err == (
        "error: process 1 of 2 failed with exit code 3; the others were stopped\n"
    )


def test_wrong_numbers_and_scripts_are_refused(script, capsys):
    """No process is started for less than one process, or without a script."""
    with pytest.raises(SystemExit, match="2"):
        main(["launch", "--nproc", "0", script("")])
    assert "expected a whole number from 1 to 1,024, got 0" in capsys.readouterr().err
    assert main(["launch", "--nproc", "2", "no-such-script.py"]) == 1
    assert capsys.readouterr().err == (
        "error: there is no script 'no-such-script.py'.\n  try: give the path of a Python file\n"
    )


def test_torch_is_needed(script, capsys, monkeypatch):
    """Without PyTorch the error says what to install."""
    monkeypatch.setattr(launch, "find_spec", lambda _name: None)
    assert main(["launch", "--nproc", "2", script("")]) == 1
    errors = capsys.readouterr().err
    assert "PyTorch is not installed.\n  try: pip install 'tremula[torch]'" in errors


def test_threads_are_shared_out(script, tmp_path, monkeypatch):
    """The cores are divided among the processes, with one thread at least."""
    monkeypatch.setattr(launch, "_n_cores", lambda: 6)
    for n_processes, n_threads in ((2, 3), (8, 1)):
        seen = {}
        monkeypatch.delenv("OMP_NUM_THREADS")
        monkeypatch.setitem(sys.modules, "torch.distributed.run", _Recorder(seen))
        assert main(["launch", "--nproc", str(n_processes), script(""), "a"]) == 0
        assert seen["threads"] == str(n_threads)


class _Recorder:
    """Stands in for torchrun."""

    def __init__(self, seen):
        self.seen = seen

    def parse_args(self, arguments):
        return arguments

    def run(self, arguments):
        self.seen["arguments"] = arguments
        self.seen["threads"] = os.environ["OMP_NUM_THREADS"]


POPDIST = """
import popdist, popdist.poptorch, poptorch, torch
import torch.distributed
if __name__ == "__main__":
    popdist.init()
    options = poptorch.Options()
    place = options.Distributed.processId, options.Distributed.numProcesses
    assert place == (popdist.getInstanceIndex(), popdist.getNumInstances()), place
    opts = popdist.poptorch.Options()
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    (part,) = next(iter(poptorch.DataLoader(opts, data, batch_size=4)))
    total = part.sum()
    torch.distributed.all_reduce(total)
    assert total == 28, total
    assert part.tolist() == list(range(4 * place[0], 4 * place[0] + 4))
"""


TRAINING = """
import torch, poptorch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(4, 3)
    def forward(self, x):
        return torch.nn.functional.mse_loss(self.dense(x), torch.zeros(2, 3))
model, options = Net(), poptorch.Options()
n, mine = options.Distributed.numProcesses, options.Distributed.processId
x = torch.arange(32.0).reshape(8, 4) / 10
options.replicationFactor(4 // n)
x = x[8 // n * mine : 8 // n * (mine + 1)]
step = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(5):
    step(x)
step.copyWeightsToHost()
with open(__file__ + f".{n}.{mine}", "w") as file:
    file.write(str(model.dense.weight.tolist()))
"""

TALKED = """
    open(__file__ + f".talked.{place[0]}", "w").close()
"""


@pytest.fixture(scope="module")
def results_of_two(tmp_path_factory):
    """Two processes that first talk, then train: their code, their script, what they wrote.

    They are started once. One that is aborted says where.
    """
    path = tmp_path_factory.mktemp("two") / "script.py"
    path.write_text(POPDIST + TALKED + TRAINING)
    with pytest.MonkeyPatch.context() as patch, _written_to(path.with_name("written")) as written:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONFAULTHANDLER", "1")
        code = main(["launch", "--nproc", "2", str(path)])
    return code, path, written.read_text(encoding="utf-8")


@contextmanager
def _written_to(path):
    """A file that gets what this process and its children write."""
    streams = [os.dup(1), os.dup(2)]
    with path.open("w", encoding="utf-8") as file:
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield path
        finally:
            for number, stream in enumerate(streams, start=1):
                os.dup2(stream, number)
                os.close(stream)


@pytest.mark.slow
def test_poptorch_and_popdist_see_the_processes(results_of_two):
    """Options, popdist and DataLoader agree on who loads what, and the processes can talk."""
    _, path, written = results_of_two
    talked = [Path(f"{path}.talked.{mine}").exists() for mine in range(3)]
    assert talked == [True, True, False], written


@pytest.mark.slow
def test_gradients_of_processes_equal_those_of_replicas(results_of_two):
    """Two processes end with the weights of four replicas in one process."""
    code, path, written = results_of_two
    assert code == 0, written
    assert_trained_like_replicas(path, 2)


@pytest.mark.wide
def test_gradients_of_four_processes_equal_those_of_replicas(script):
    """So do four."""
    path = script(TRAINING)
    assert main(["launch", "--nproc", "4", path]) == 0
    assert_trained_like_replicas(path, 4)


def assert_trained_like_replicas(path: str | Path, n_processes: int) -> None:
    """The weights that each process has written are those of all replicas in this process."""
    exec(TRAINING, {"__file__": str(path)})

    def weights_of(who: str) -> np.ndarray:
        return np.array(json.loads(Path(f"{path}.{who}").read_text(encoding="utf-8")))

    for mine in range(n_processes):
        result = weights_of(f"{n_processes}.{mine}")
        np.testing.assert_allclose(result, weights_of("1.0"), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_interrupt_ends_all_without_tracebacks(script):
    """Ctrl-C reaches all processes: a script may handle it, and others end quietly."""
    path = script(
        "import os, time\n"
        "print('up', flush=True)\n"
        "try:\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    if os.environ['RANK'] == '0':\n        raise\n"
        "    print('handled', flush=True)\n"
    )
    command = [sys.executable, "-m", "tremula", "launch", "--nproc", "2", path]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert [process.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert out in {"handled\n", ""}  # unless it was stopped first, for not ending by itself
    assert errors == "\nstopped by SIGINT\n"
    assert process.returncode == 130
