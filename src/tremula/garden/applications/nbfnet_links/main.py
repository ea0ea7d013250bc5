"""Trains NBFNet on some answers, and asks for those it has not seen."""

import torch
from torch import Tensor

import poptorch
import poptorch_geometric  # noqa: F401 — static shapes of gathers and sums
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.nbfnet_links.facts import RELATIONS, facts
from tremula.garden.applications.nbfnet_links.model import LinkPredictor

N_REPLICAS, N_BATCH = 2, 8


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_members, n_groups, n_epochs = (64, 8, 12) if settings.tiny else (1000, 40, 20)
    known = facts(n_members, n_groups)
    settings.show(f"{known.n_entities} entities; asked is {RELATIONS[2]!r}")
    model = LinkPredictor(known.edges, known.types, known.n_entities, known.n_types, width=16)
    options = poptorch.Options().replicationFactor(N_REPLICAS)
    options.outputMode(poptorch.OutputMode.All)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=1e-2)
    training = poptorch.trainingModel(model, options, optimizer)
    per_call = N_REPLICAS * N_BATCH
    losses = []
    for epoch in range(n_epochs):
        for rows in torch.randperm(len(known.train)).split(per_call):
            if len(rows) == per_call:
                about, answer = known.train[rows].int().unbind(1)
                losses.append(float(training(about, answer)[1].mean()))
        if epoch % 4 == 3:
            settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}")
    training.copyWeightsToHost()
    with torch.no_grad():
        about, answer = known.test.unbind(1)
        scores, _ = model.eval()(about, answer)
    rank = mean_reciprocal_rank(scores, answer)
    settings.show(f"mean reciprocal rank of {len(about)} new answers: {rank:.3f}")
    return Findings(
        results={"mean_reciprocal_rank": rank},
        modelled=modelled_poptorch(training, settings, n_items=per_call, unit="questions/s"),
        curves={"loss": losses},
    )


def mean_reciprocal_rank(scores: Tensor, answer: Tensor) -> float:
    """The mean of 1 / place of the answer, ties counted against it."""
    own = scores.gather(1, answer.unsqueeze(1))
    return float((1.0 / (scores >= own).sum(1)).mean())
