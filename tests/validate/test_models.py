"""Whole models as workloads: the time of a call, and what rows are made of."""

import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch_geometric")

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import SchNet

import poptorch
from tremula.garden.models import large_transformers as large
from tremula.garden.models.nearest_schnet import NearestSchNet
from tremula.validate import PUBLISHED, NoWorkload, read_rows
from tremula.validate.workloads import model_call as calls
from tremula.validate.workloads import model_kge as kge
from tremula.validate.workloads import model_schnet as schnet
from tremula.validate.workloads import model_transformers as transformers
from tremula.validate.workloads.model_call import CallTime, ModelCall, time_call
from tremula.validate.workloads.table import chip_of, find_workload

ALL = {row.id: row for row in read_rows(PUBLISHED)}
ROWS = {name: row for name, row in ALL.items() if row.workload.startswith("SchNet ")}


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
    call = ModelCall(
        model=Line(),
        micro_batch=(torch.ones(4, 3), torch.ones(4, 2)),
        optimizer=lambda parameters: poptorch.optim.Adam(parameters, lr=1e-3),
        device_iterations=5,
        gradient_accumulation=2,
        uses_made_up_data=True,
    )
    result = time_call(call, "bow")
    once, per_iteration = calls._counted_cycles(replace(call, model=Line()), "bow")[0]
    assert result.cycles == pytest.approx(once + 5 * per_iteration)
    assert result.host_s == calls.HOST_S_PER_CALL
    loaded = time_call(replace(call, model=Line(), uses_made_up_data=False), "bow")
    assert loaded.cycles > result.cycles  # streams
    assert loaded.seconds > result.seconds + calls.LOADED_HOST_S_PER_CALL / 2
    alone = replace(call, uses_made_up_data=False, is_timed_without_loader=True)
    assert alone.host_s == calls.HOST_S_PER_CALL


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
    """A step that no ablation has, and an installation without PyG, say so."""
    row = ROWS["schnet-abl-baseline-386"]
    other = replace(row, parameters={**row.parameters, "step": "quicker atoms"})
    with pytest.raises(NoWorkload, match="is none of that ablation"):
        schnet.water_clusters(other, "bow")
    monkeypatch.setitem(sys.modules, "tremula.garden.models.nearest_schnet", None)
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
    result, loss = model(z, pos, torch.tensor([4, 5, 0]), y)
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
    torch.testing.assert_close(result[:3], expected, rtol=1e-4, atol=1e-5)
    assert loss.item() == pytest.approx(((expected - y[:3]) ** 2).mean().item(), rel=1e-3)


def call_of(name: str, module, monkeypatch) -> tuple[ModelCall, float]:
    """The call that stands for a row, and the row's figure if it took two seconds."""
    made = []

    def noted(call, chip_name):
        made.append(call)
        assert chip_name == "gc200"
        return CallTime(1.33e9, 1.33e9, 1.0)

    monkeypatch.setattr(module, "time_call", noted)
    row = ALL[name]
    workload = find_workload(row)
    assert workload.family == calls.FAMILY
    value = workload.predict(row, chip_of(row)).in_unit(row.unit)
    (call,) = made
    return call, value


@pytest.mark.parametrize("name", ["bess-biokg-1", "bess-biokg-4", "bess-yago-4"])
def test_triples_of_a_call(name, monkeypatch):
    """A row's entities, triples and negatives; its figure is the time of a call."""
    call, value = call_of(name, kge, monkeypatch)
    row, shape = ALL[name], call.model.shape
    assert value == pytest.approx(2000)
    assert call.replication_factor == shape.n_shards == row.n_ipus
    assert call.is_timed_without_loader
    triples, negatives = call.micro_batch[0], call.micro_batch[3]
    assert triples.numel() == row.number("shard_bs")
    each = row.number("shard_bs") * int(row.text("n_negative").split()[0])
    assert negatives.numel() == each * shape.n_shards
    assert shape.n_rows * shape.n_shards - shape.n_entities < shape.n_shards


def test_tables_too_large_and_other_scores():
    """A row that cannot be compiled here, or that was not written, says so."""
    row = ALL["bess-wikikg2-4"]
    with pytest.raises(NoWorkload, match="625,151 rows"):
        kge.training_step(row, "gc200")
    with pytest.raises(NoWorkload, match="BoxE was not written"):
        kge.training_step(replace(row, workload="BoxE KGE training step, ogbl-wikikg2"), "gc200")
    with pytest.raises(NoWorkload, match="none of ogbl-biokg"):
        kge.training_step(replace(row, workload="TransE KGE training step, mine"), "gc200")


@pytest.mark.slow
def test_pipelines_of_transformers(monkeypatch):
    """BERT: 96 samples on eight pipelines of two chips. GPT: a global batch on one of four."""
    small = replace(large.BERT_LARGE, n_layers=24, width=32, n_heads=2, n_words=64)
    monkeypatch.setattr(large.BertForQuestions.__init__, "__defaults__", (small,))
    call, value = call_of("hf-bertlarge-eval", transformers, monkeypatch)
    assert value == pytest.approx(96 / 2)
    assert call.n_micro_batches * len(call.micro_batch[0]) == 96
    small = replace(large.GPT_117M, n_layers=12, width=32, n_heads=2, n_words=64)
    monkeypatch.setattr(large.GptWithLoss.__init__, "__defaults__", (small,))
    call, value = call_of("caraml-gpt", transformers, monkeypatch)
    assert value == pytest.approx(2)
    assert call.n_micro_batches == 2048


def pipelined(name: str, n_micro_batches: int) -> ModelCall:
    size = large.Size(n_layers=2, width=32, n_heads=2, n_words=64, n_positions=16)
    words = torch.zeros(1, 16, dtype=torch.int32)
    if name == "bert":
        model = large.BertForQuestions(size).half().eval()
        large.place(model, (1, 1))
        how = {"micro_batch": (words, words, words), "device_iterations": n_micro_batches}
    else:
        model = large.GptWithLoss(size).half().train()
        large.place(model, (0, 1, 1))
        how = {"micro_batch": (words, words), "gradient_accumulation": n_micro_batches}
        how["optimizer"] = lambda parameters: poptorch.optim.AdamW(parameters, lr=1e-3)
    return ModelCall(model=model, is_pipelined=True, n_tiles=16, **how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_filling"), [("bert", 1), pytest.param("gpt", 6, marks=pytest.mark.wide)]
)
def test_a_pipeline_is_as_long_as_its_slowest_stage(name, n_filling):
    """A full pipeline takes as long for each further micro-batch; filling takes the same again."""
    short, long = (time_call(pipelined(name, n), "bow").cycles for n in (16, 32))
    assert long / short == pytest.approx((32 + n_filling) / (16 + n_filling), rel=0.1)


def test_steps_of_the_ablation():
    """A step has all those before it, whatever words name it; another is no step."""
    from tremula.validate.workloads.model_schnet import _ablation_level
    from tremula.validate.workloads.table import NoWorkload

    steps = ("baseline padded", "+ packing", "async io", "+ softplus, merged sums", "prefetch 4")
    assert [_ablation_level(step) for step in steps] == [0, 1, 2, 3, 4]
    assert _ablation_level("packing, async loader and cycle optimisations") == 3
    with pytest.raises(NoWorkload, match="'knitting' is none of that ablation"):
        _ablation_level("knitting")
