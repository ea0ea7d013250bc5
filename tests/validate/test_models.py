"""Whole models as workloads: the time of a call, and what SchNet's rows are made of."""

import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch_geometric")

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import SchNet

import poptorch
from tremula.garden.nearest_schnet import NearestSchNet
from tremula.validate import PUBLISHED, NoWorkload, read_rows
from tremula.validate.workloads import model_call as calls
from tremula.validate.workloads import model_schnet as schnet
from tremula.validate.workloads.model_call import Call, CallTime, time_call
from tremula.validate.workloads.table import chip_of, find_workload

ROWS = {row.id: row for row in read_rows(PUBLISHED) if row.workload.startswith("SchNet ")}


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(3, 2)

    def forward(self, x, y):
        out = self.line(x)
        return out, poptorch.identity_loss(functional.mse_loss(out, y), "none")


@pytest.mark.slow
def test_a_call_is_as_long_as_its_loops():
    """Iterations are built twice and counted as often as asked, as the whole program says."""
    call = Call(
        model=Line(),
        micro_batch=(torch.ones(4, 3), torch.ones(4, 2)),
        device_iterations=5,
        gradient_accumulation=2,
        uses_made_up_data=True,
    )
    found = time_call(call, "bow")
    once, per_iteration = calls._device_cycles(replace(call, model=Line()), "bow")[0]
    assert found.cycles == pytest.approx(once + 5 * per_iteration)
    assert found.host_s == calls.HOST_S_PER_CALL
    loaded = time_call(replace(call, model=Line(), uses_made_up_data=False), "bow")
    assert loaded.cycles > found.cycles  # streams
    assert loaded.seconds > found.seconds + calls.LOADED_HOST_S_PER_CALL / 2


@pytest.mark.parametrize("name", ROWS)
def test_molecules_of_a_call(name, monkeypatch):
    """Calls make up the epoch that a row states; the figure is molecules by the time of a call."""
    made = []

    def noted(call, chip_name):
        made.append(call)
        assert chip_name == "bow"
        return CallTime(1.85e9, 1.85e9, 1.0)  # two seconds

    monkeypatch.setattr(schnet, "time_call", noted)
    row = ROWS[name]
    workload = find_workload(row)
    assert workload.family == schnet.FAMILY
    value = workload.predict(row, chip_of(row)).in_unit("graphs/s")
    (call,) = made
    assert call.replication_factor == row.n_ipus
    assert call.uses_made_up_data == ("synth" in name)
    assert value * 2 % call.n_micro_batches == 0
    if "graphs_per_epoch" in row.parameters:
        assert row.number("graphs_per_epoch") % (value * 2) == 0


def test_other_steps_and_missing_packages(monkeypatch):
    """An ablation that was not written, and an installation without PyG, say so."""
    row = ROWS["schnet-abl-baseline-386"]
    other = replace(row, parameters={**row.parameters, "step": "async loader"})
    with pytest.raises(NoWorkload, match="only the padded baseline"):
        schnet.water_clusters(other, "bow")
    monkeypatch.setitem(sys.modules, "tremula.garden.nearest_schnet", None)
    with pytest.raises(NoWorkload, match=r"tremula\[geometric\]"):
        schnet.water_clusters(row, "bow")


def test_neighbours_on_the_device_are_schnet_on_all_edges():
    """Predictions of packed molecules are PyG's on the edges within the cutoff, for each alone."""
    torch.manual_seed(0)
    sizes, y = [4, 1, 6], torch.tensor([1.0, 2.0, 3.0, 0.0])
    z, pos = torch.randint(1, 9, (11,)), 2 * torch.randn(11, 3)
    model = NearestSchNet(
        4, n_features=8, n_interactions=2, cutoff=4.0, k=7,
        writes_out_softplus=True, keeps_blocks_apart=True,
    )  # fmt: skip
    found, loss = model(z, pos, torch.tensor([4, 5, 0]), y)
    plain = SchNet(8, 8, 2, 25, cutoff=4.0)
    names = {
        name.replace("conv.filters.", "conv."): v for name, v in model.model.state_dict().items()
    }
    plain.load_state_dict(names, strict=False)
    expected = []
    for atoms, places in zip(z.split(sizes), pos.split(sizes), strict=True):
        length = torch.cdist(places, places).fill_diagonal_(9.0)
        edges = (length <= 4.0).nonzero().t()
        plain.interaction_graph.forward = lambda *_, e=edges, w=length: (e, w[e[0], e[1]])
        expected.append(plain(atoms, places, torch.zeros_like(atoms)).view(-1))
    expected = torch.cat(expected)
    torch.testing.assert_close(found[:3], expected, rtol=1e-4, atol=1e-5)
    assert loss.item() == pytest.approx(((expected - y[:3]) ** 2).mean().item(), rel=1e-3)
