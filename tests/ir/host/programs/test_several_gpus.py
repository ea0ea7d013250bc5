"""Several processes on GPUs: each has its own, or they share one and sum through the CPU."""

from pathlib import Path

import pytest
import torch

from tests.ir.steps import captured
from tests.scripts import run_instances
from tremula.base.errors import InvalidOption
from tremula.ir.host.programs.backend_choice import backend_for
from tremula.ir.host.programs.distributed import share_gpus
from tremula.ir.settings import HostSettings, own_gpu

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def has(monkeypatch: pytest.MonkeyPatch, n_gpus: int, **environment: object) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: n_gpus > 0)
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))


def test_processes_have_the_gpu_of_their_number(monkeypatch: pytest.MonkeyPatch):
    """In turn if there are more of them; a process alone, or one GPU, is PyTorch's current."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    has(monkeypatch, 4)
    assert own_gpu() == torch.device("cuda")
    for rank, index in ((0, 0), (3, 3), (5, 1)):
        has(monkeypatch, 4, LOCAL_RANK=rank)
        assert own_gpu() == HostSettings(device="cuda").torch_device()
        assert own_gpu() == torch.device("cuda", index)
    has(monkeypatch, 1, LOCAL_RANK=1)
    assert HostSettings(device="auto").torch_device() == torch.device("cuda")


def test_processes_that_share_a_gpu_are_not_captured(monkeypatch: pytest.MonkeyPatch):
    """Sums go through the CPU then, which a CUDA graph cannot wait for."""
    step = captured(torch.tanh, torch.ones(3))
    has(monkeypatch, 2, LOCAL_WORLD_SIZE=2)
    assert not share_gpus()
    assert backend_for(step, HostSettings(device="cuda"), 2) == "fastest"
    has(monkeypatch, 1, LOCAL_WORLD_SIZE=2)
    assert share_gpus()
    assert backend_for(step, HostSettings(device="cuda"), 1) == "fastest"
    assert backend_for(step, HostSettings(device="cuda"), 2) == "eager"
    with pytest.raises(InvalidOption, match="share a GPU"):
        backend_for(step, HostSettings(device="cuda", host="cuda-graph"), 2)


_TRAINING = """
import os, torch, poptorch
from tremula.ir.settings import configured

rank, n = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
x = torch.randn(8, 4)

class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, x):
        return poptorch.identity_loss(self.model(x) ** 2, "mean")

options = poptorch.Options()
options.Distributed.configureProcessId(rank, n)
with configured(device={device!r}, host="auto"):
    step = poptorch.trainingModel(WithLoss(), options, torch.optim.SGD(model.parameters(), lr=0.5))
    for _ in range(3):
        step(x.chunk(n)[rank])
    step.copyWeightsToHost()
if rank == 0:
    torch.save(model.state_dict(), {result!r})
"""


def trained(folder: Path, device: str, n_processes: int) -> dict[str, torch.Tensor]:
    result = folder / f"{device}{n_processes}.pt"
    code = _TRAINING.format(device=device, result=str(result))
    for status, output in run_instances(code, folder, n_processes, n_processes):
        assert status == 0, output[-2000:]
    return torch.load(result)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_two_processes_train_as_one(device: str, tmp_path: Path):
    """Each with half of the batch; with one GPU they share it."""
    folders = [tmp_path / str(n) for n in (1, 2)]
    for folder in folders:
        folder.mkdir()
    one, two = (trained(folder, device, n) for n, folder in enumerate(folders, start=1))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_sums_by_nccl_are_part_of_a_cuda_graph(tmp_path: Path):
    """A group of one process: what is captured and replayed is NCCL's sum."""
    import torch.distributed as dist

    from tremula.ir.cuda_capture import capturing
    from tremula.ir.host.programs.distributed import sum_over_processes

    dist.init_process_group("nccl", f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        values = [torch.ones(3, device="cuda"), torch.ones(2, 2, device="cuda")]
        sum_over_processes(values)
        graph = torch.cuda.CUDAGraph()
        with capturing(graph):
            results = sum_over_processes(values)
        values[0].fill_(5.0)
        graph.replay()
        torch.cuda.synchronize()
        assert results[0].tolist() == [5.0, 5.0, 5.0]
        del graph
    finally:
        dist.destroy_process_group()
