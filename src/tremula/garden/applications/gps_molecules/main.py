"""Trains the hybrid on packed molecules; the fused operation is compared with its parts."""

import numpy as np
import torch

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.columns import with_radius_graph  # pyright: ignore[reportMissingImports] - from the table of modules
from tremula.frontends.geometric.feeding.columns import GraphColumns
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.gps_molecules.fused import gather_scatter, gathered_and_summed
from tremula.garden.applications.gps_molecules.model import BOND, Hybrid
from tremula.garden.models.datasets.qm9 import TARGETS, qm9

N_GRAPHS, N_ATOMS = 12, 128  # of a pack
FIELDS = ("z", "pos", "edge_index", "batch", "y", "graphs_mask")


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    molecules, deviation = polarisabilities(400 if settings.tiny else 20000)
    loader = packed(molecules)
    width, n_layers, n_epochs = (16, 2, 12) if settings.tiny else (64, 6, 20)
    model = Hybrid(N_GRAPHS, width, n_layers)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=5e-3)
    training = poptorch.trainingModel(model, loader.options, optimizer)
    n_packed = float(np.mean([int(data.graphs_mask.sum()) for data in loader]))
    settings.show(f"{len(molecules)} molecules, {n_packed:.1f} in a pack")
    errors = []
    for epoch in range(n_epochs):
        squares = [float(training(*(data[f] for f in FIELDS))[1]) for data in loader]
        errors.append(float(np.mean(squares)) ** 0.5)
        settings.show(f"  epoch {epoch + 1}: error {deviation * errors[-1]:.2f} bohr³")
    return Findings(
        results={
            "error_over_best_guess": errors[-1],
            "difference_of_fused_op": difference_on_tiles(),
        },
        modelled=modelled_poptorch(training, settings, n_items=round(n_packed), unit="molecules/s"),
        curves={"error_over_best_guess": errors},
    )


def polarisabilities(n: int) -> tuple[GraphColumns, float]:
    """Molecules with their bonds; targets with mean 0 and deviation 1, and their deviation."""
    target = list(TARGETS).index("Polarizability_bohr3")
    molecules = qm9(n).with_column("y", lambda y: y[:, target])
    y = molecules.columns["y"].values
    scaled = molecules.with_column("y", lambda y: ((y - y.mean()) / y.std()).astype(np.float32))
    return with_radius_graph(scaled, BOND), float(y.std())


def packed(molecules: GraphColumns) -> pg.FixedSizeDataLoader:
    return pg.FixedSizeDataLoader(
        molecules, N_GRAPHS, shuffle=True,
        fixed_size_options=pg.FixedSizeOptions(N_ATOMS, 3 * N_ATOMS, N_GRAPHS),
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack, options=poptorch.Options(),
    )  # fmt: skip


class Fused(torch.nn.Module):
    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return gather_scatter(*x)


def difference_on_tiles() -> float:
    """The custom operation run vertex by vertex, against PyTorch's operations."""
    draw = torch.Generator().manual_seed(0)
    x, weights = torch.randn(20, 4, generator=draw), torch.rand(50, generator=draw)
    edges = torch.randint(20, (2, 50), generator=draw).int()
    options = poptorch.Options().useIpuModel(True)
    result = poptorch.inferenceModel(Fused(), options)(x, edges, weights)
    return float((result - gathered_and_summed(x, edges, weights)).abs().max())
