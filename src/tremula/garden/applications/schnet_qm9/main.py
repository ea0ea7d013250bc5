"""Trains SchNet on packed molecules over two replicas, and compares packing with padding."""

import numpy as np
import torch

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.columns import with_radius_graph  # pyright: ignore[reportMissingImports] - from the table of modules
from tremula.frontends.geometric.common import GraphBatch
from tremula.frontends.geometric.feeding.columns import GraphColumns
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.datasets.qm9 import GAP, qm9
from tremula.garden.models.molecules import SchNetOnEdges

CUTOFF = 4.0  # Å
N_ATOMS = 128  # of a pack
N_REPLICAS, N_ITERATIONS, N_GRAPHS = 2, 2, 12
FIELDS = ("z", "pos", "edge_index", "batch", "y", "graphs_mask")


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    molecules = qm9(400 if settings.tiny else None).with_column("y", lambda y: y[:, GAP])
    mean = molecules.columns["y"].values.mean()
    molecules = molecules.with_column("y", lambda y: y - mean)
    graphs = with_radius_graph(molecules, CUTOFF)
    loader = packed(graphs)
    width, n_layers, n_epochs = (16, 1, 4) if settings.tiny else (64, 4, 10)
    settings.show(f"{len(graphs):,} molecules, {len(loader)} calls an epoch")
    model = SchNetOnEdges(
        N_GRAPHS, hidden_channels=width, num_filters=width, num_interactions=n_layers,
        num_gaussians=25, cutoff=CUTOFF,
    )  # fmt: skip
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=5e-3)
    training = poptorch.trainingModel(model, loader.options, optimizer)
    errors = []
    for epoch in range(n_epochs):
        result = [error_of(training(*(data[f] for f in FIELDS))[0], data) for data in loader]
        errors.append(float(torch.cat(result).mean()))
        settings.show(f"  epoch {epoch + 1}: error {errors[-1]:.3f} eV")
    share = np.mean([float(data.nodes_mask.float().mean()) for data in loader])
    gain = molecules_per_call(loader) / padded_molecules_per_call(graphs)
    settings.show(f"{share:.0%} of places hold atoms; {gain:.2f} times the molecules of padding")
    return Findings(
        results={
            "error_ev": errors[-1],
            "share_of_places_used": float(share),
            "packed_over_padded": gain,
        },
        modelled=modelled_poptorch(
            training, settings, n_items=round(molecules_per_call(loader)), unit="molecules/s"
        ),
        curves={"error_ev": errors},
    )


def packed(graphs: GraphColumns) -> pg.FixedSizeDataLoader:
    """As many molecules as fit into each pack of a fixed number of atoms and neighbours."""
    n_edges = int(1.1 * N_ATOMS * graphs.edge_start[-1] / graphs.node_start[-1])
    options = poptorch.Options().replicationFactor(N_REPLICAS).deviceIterations(N_ITERATIONS)
    return pg.FixedSizeDataLoader(
        graphs, N_GRAPHS, shuffle=True, drop_last=True,
        fixed_size_options=pg.FixedSizeOptions(N_ATOMS, n_edges, N_GRAPHS),
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack,
        options=options.outputMode(poptorch.OutputMode.All),
    )  # fmt: skip


def error_of(prediction: torch.Tensor, data: GraphBatch) -> torch.Tensor:
    return (prediction - data.y)[data.graphs_mask].abs()


def molecules_per_call(loader: pg.FixedSizeDataLoader) -> float:
    return float(np.mean([int(data.graphs_mask.sum()) for data in loader]))


def padded_molecules_per_call(graphs: GraphColumns) -> float:
    """How many fit when each has the room of the largest, in as many atoms."""
    largest = int(graphs.graph_sizes.nodes.max())
    return N_REPLICAS * N_ITERATIONS * ((N_ATOMS - 1) // largest)
