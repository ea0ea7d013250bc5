"""Trains a relational network on sampled neighbourhoods and ranks the accounts it has not seen."""

import torch
from torch import Tensor
from torch_geometric.data import Data

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.neighbor_loader import FixedSizeNeighborLoader  # pyright: ignore[reportMissingImports] - from the table of modules
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.fraud_rgcn.model import FraudNetwork
from tremula.garden.models.datasets.graphs import transactions

N_SEEDS = 50  # accounts of a batch whose labels count


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_accounts, n_epochs = (500, 7) if settings.tiny else (4000, 6)
    graph = transactions(n_accounts)
    assert isinstance(graph.y, Tensor), "accounts have labels"
    loader = FixedSizeNeighborLoader(
        graph, [6, 4], batch_size=N_SEEDS, shuffle=True,
        fixed_size_options=pg.FixedSizeOptions(8 * N_SEEDS, 24 * N_SEEDS),
    )  # fmt: skip
    settings.show(f"{n_accounts:,} accounts, {int(graph.y.sum())} of them frauds")
    model = FraudNetwork(graph.num_features, 16)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.02)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    losses, area = [], 0.0
    for epoch in range(n_epochs):
        margins, truths = [], []
        for batch in loader:
            scores, loss = training(*arguments(batch, is_train=True))
            is_test = arguments(batch, is_train=False)[-1]
            margins.append((scores[:, 1] - scores[:, 0])[is_test])
            truths.append(batch.y[is_test])
            losses.append(float(loss))
        area = area_under_roc(torch.cat(margins), torch.cat(truths).bool())
        settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}, area under ROC {area:.3f}")
    return Findings(
        results={"area_under_roc": area},
        modelled=modelled_poptorch(training, settings, n_items=N_SEEDS, unit="accounts/s"),
        curves={"loss": losses},
    )


def arguments(batch: Data, *, is_train: bool) -> tuple[Tensor, ...]:
    """Arguments of forward; only seeds count, which are the first nodes of a batch."""
    inputs = [batch[name] for name in ("x", "edge_index", "edge_type", "y")]
    is_seed = torch.arange(len(inputs[-1])) < N_SEEDS
    counts = is_seed & (batch.train_mask == is_train)
    return *inputs, counts


def area_under_roc(score: Tensor, is_positive: Tensor) -> float:
    """The chance that a positive example scores above a negative one; ties count half."""
    above = score[is_positive].unsqueeze(1) - score[~is_positive]
    return float(((above > 0).float() + 0.5 * (above == 0).float()).mean())
