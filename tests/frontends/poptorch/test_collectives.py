"""Horovod's names: collectives of a single process, of several under PopRun, and wrong calls."""

import pytest
import torch

import horovod.torch as hvd
from tests.scripts import run_instances

SCRIPT = """
import torch
import horovod.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
assert (size, hvd.local_rank(), hvd.local_size(), hvd.cross_size()) == (2, rank, 2, 1)
x = torch.tensor([1.0, 2.0]) * (rank + 1)
assert hvd.allreduce(x).tolist() == [1.5, 3.0]
assert hvd.allreduce(x, op=hvd.Sum).tolist() == [3.0, 6.0]
assert hvd.allreduce(x, op=hvd.Max, postscale_factor=2.0).tolist() == [4.0, 8.0]
assert [t.item() for t in hvd.grouped_allreduce([x[0], x[1]], op=hvd.Sum)] == [3.0, 6.0]
assert hvd.allgather(torch.full((rank + 1, 2), float(rank))).tolist() == [[0, 0], [1, 1], [1, 1]]
assert hvd.broadcast(torch.tensor([rank]), root_rank=1).tolist() == [1]
assert hvd.broadcast_object({"of": rank}, 0) == {"of": 0}
assert x.tolist() == [1.0 * (rank + 1), 2.0 * (rank + 1)]  # no collective wrote into it

torch.manual_seed(rank)
model = torch.nn.Linear(2, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
assert isinstance(optimizer, torch.optim.SGD)
torch.manual_seed(5)
rows, targets = torch.rand(8, 2), torch.rand(8, 1)
alone = torch.nn.Linear(2, 1)
alone.load_state_dict(model.state_dict())
reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    own, every = slice(rank, None, 2), slice(None)
    for net, step, own in ((model, optimizer, own), (alone, reference, every)):
        step.zero_grad()
        torch.nn.functional.mse_loss(net(rows[own]), targets[own]).backward()
        step.step()
torch.testing.assert_close(model.weight, alone.weight)
hvd.shutdown()
"""


@pytest.fixture
def single():
    """A process that was initialised alone."""
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.slow
def test_two_processes_compute_together(tmp_path):
    """Sums, lists, copies and an optimiser over the processes that PopRun starts."""
    for code, printed in run_instances(SCRIPT, tmp_path, 2, 2):
        assert code == 0, printed


def test_a_single_process_is_a_group_of_one(single):
    """Every collective gives the value of its argument, in a new tensor."""
    x = torch.tensor([1.0, 2.0])
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    for result in (hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 0)):
        assert torch.equal(result, x)
        assert result is not x
    assert hvd.synchronize(hvd.allreduce_async(x, op=hvd.Sum)).tolist() == [1.0, 2.0]
    x.requires_grad_()
    hvd.allreduce(x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    model = torch.nn.Linear(1, 1)
    hvd.broadcast_parameters(model.named_parameters(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    before = model.weight.item()
    model(torch.ones(1, 1)).sum().backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert model.weight.item() == pytest.approx(before - 1)


def test_wrong_calls_say_what_to_do(single):
    """By name: before init, integers averaged, wrong operations, ranks and arguments."""
    with pytest.raises(ValueError, match="cannot average integers"):
        hvd.allreduce(torch.tensor([1]))
    assert hvd.allreduce(torch.tensor([3]), op=hvd.Sum).tolist() == [3]
    with pytest.raises(ValueError, match="average= or op="):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="Adasum is not supported"):
        hvd.allreduce(torch.ones(1), op=hvd.Adasum)
    with pytest.raises(ValueError, match="root_rank must be a process from 0 to 0; got 3"):
        hvd.broadcast(torch.ones(1), 3)
    with pytest.raises(ValueError, match=r"takes a torch\.Tensor; got list"):
        hvd.allgather([1.0])
    with pytest.raises(ValueError, match="takes a dictionary or pairs"):
        hvd.broadcast_parameters(torch.ones(1), 0)
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"rank\(\) was called before init\(\)"):
        hvd.rank()
