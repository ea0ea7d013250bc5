"""Trains a temporal graph network; each batch is guessed before its events are written."""

import torch

import poptorch
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.temporal_graph.model import TemporalGraph
from tremula.garden.models.datasets.graphs import events

N_BATCH = 50  # events


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_events, n_epochs = (1000, 4) if settings.tiny else (8000, 5)
    stream = events(n_events)
    first_item = int(stream.target.min())
    n_message = stream.message.shape[1]
    model = TemporalGraph(stream.n_nodes, N_BATCH, n_message, width=16, n_last=4)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=5e-3)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    settings.show(f"{n_events:,} events of {stream.n_nodes} nodes")
    losses, share = [], 0.0
    for epoch in range(n_epochs):
        margins = []
        for begin in range(0, n_events, N_BATCH):
            part = slice(begin, begin + N_BATCH)
            other = torch.randint(first_item, stream.n_nodes, (N_BATCH,))
            margin, loss = training(
                stream.source[part], stream.target[part], other, stream.message[part]
            )
            margins.append(margin)
            losses.append(float(loss))
        share = float((torch.cat(margins) > 0).float().mean())
        settings.show(f"  epoch {epoch + 1}: the right item preferred in {share:.2f}")
    return Findings(
        results={"right_item_preferred": share},
        modelled=modelled_poptorch(training, settings, n_items=N_BATCH, unit="events/s"),
        curves={"loss": losses},
    )
