"""Trains SchNet on our own energies of molecules, and predicts those of shapes it has not seen."""

import numpy as np
import torch

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.columns import with_radius_graph  # pyright: ignore[reportMissingImports] - from the table of modules
from tremula.frontends.geometric.feeding.columns import GraphColumns
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.schnet_dft.energies import energies
from tremula.garden.models.molecules import SchNetOnEdges

CUTOFF = 3.0  # Å: more than any of these molecules measures, so all atoms see each other
N_GRAPHS, N_ATOMS = 16, 56  # of a batch, one of them a place for padding
FIELDS = ("z", "pos", "edge_index", "batch", "y", "graphs_mask")


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    data = energies()
    known, new = (with_radius_graph(part, CUTOFF) for part in (data.known, data.new))
    width, n_layers, n_epochs = (32, 2, 60) if settings.tiny else (64, 3, 200)
    settings.show(f"{len(known)} molecules to learn from, {len(new)} others")
    model = SchNetOnEdges(
        N_GRAPHS, hidden_channels=width, num_filters=width, num_interactions=n_layers,
        num_gaussians=25, cutoff=CUTOFF,
    )  # fmt: skip
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=4e-3)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    losses, loader = [], batches(known, shuffle=True)
    for epoch in range(n_epochs):
        optimizer.param_groups[0]["lr"] = 4e-3 * (1 - epoch / n_epochs)
        training.setOptimizer(optimizer)
        losses += [float(training(*(batch[f] for f in FIELDS))[1]) for batch in loader]
        if epoch % 20 == 19:
            settings.show(f"  epoch {epoch + 1}: {np.sqrt(losses[-1]):.3f} eV off")
    training.detachFromDevice()
    error, spread = tested(model, new)
    settings.show(f"new shapes: {error:.3f} eV off; their energies differ by {spread:.3f} eV")
    return Findings(
        results={"error_ev": error, "error_over_spread": error / spread},
        modelled=modelled_poptorch(training, settings, n_items=N_GRAPHS - 1, unit="molecules/s"),
        curves={"loss": losses},
    )


def batches(graphs: GraphColumns, *, shuffle: bool) -> pg.FixedSizeDataLoader:
    """Packs of up to fifteen molecules; each atom has the others of its molecule as neighbours."""
    sizes = pg.FixedSizeOptions(N_ATOMS, 4 * N_ATOMS, N_GRAPHS)
    return pg.FixedSizeDataLoader(
        graphs, N_GRAPHS, shuffle=shuffle, fixed_size_options=sizes,
        fixed_size_strategy=pg.FixedSizeStrategy.StreamPack,
    )  # fmt: skip


def tested(model: SchNetOnEdges, new: GraphColumns) -> tuple[float, float]:
    """Mean absolute errors of predictions, and of always saying the mean."""
    predict = poptorch.inferenceModel(model.eval())
    result, truth = [], []
    for batch in batches(new, shuffle=False):
        result.append(predict(*(batch[f] for f in FIELDS))[0][batch.graphs_mask])
        truth.append(batch.y[batch.graphs_mask])
    expected = torch.cat(truth)
    error = (torch.cat(result) - expected).abs().mean()
    return float(error), float((expected - expected.mean()).abs().mean())
