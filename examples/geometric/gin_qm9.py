"""GIN on molecules: bonds as edges, histogram packs, a sum per molecule.

    python gin_qm9.py [--molecules N] [--epochs N]

The graph isomorphism network learns the polarisability of molecules from their atoms and bonds
alone. Bonds are pairs of atoms less than 1.7 Å apart.
"""

# Arguments when run as a test: --molecules 600 --epochs 3

import argparse

import numpy as np
import torch

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.columns import with_radius_graph
from tremula.garden.models.datasets.qm9 import TARGETS, qm9
from tremula.garden.models.molecules import gin

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--molecules", type=int, default=20000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--graphs", type=int, default=16, help="of a batch, padding included")
    args = parser.parse_args()

    torch.manual_seed(0)
    target = list(TARGETS).index("Polarizability_bohr3")
    molecules = qm9(args.molecules).with_column("y", lambda y: y[:, target])
    y = molecules.columns["y"].values
    molecules = molecules.with_column("y", lambda y: ((y - y.mean()) / y.std()).astype(np.float32))
    bonds = with_radius_graph(molecules, 1.7)
    sizes = pg.FixedSizeOptions(
        num_nodes=20 * args.graphs, num_edges=44 * args.graphs, num_graphs=args.graphs
    )
    options = poptorch.Options().deviceIterations(4).outputMode(poptorch.OutputMode.All)
    loader = pg.FixedSizeDataLoader(
        bonds, args.graphs, shuffle=True, fixed_size_options=sizes,
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack, options=options,
    )  # fmt: skip
    share = np.mean([float(data.graphs_mask.float().mean()) for data in loader])
    print(f"{len(bonds)} molecules, {len(loader)} calls an epoch, {share:.2f} of graph slots used")

    model = gin(args.graphs, width=32)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=2e-3)
    training = poptorch.trainingModel(model, options, optimizer)
    losses = []
    for epoch in range(args.epochs):
        epoch_losses = [
            training(d.z, d.edge_index, d.batch, d.y, d.graphs_mask)[1].mean() for d in loader
        ]
        losses.append(float(torch.stack(epoch_losses).mean()))
        print(f"Epoch {epoch}: error {y.std() * losses[-1] ** 0.5:.2f} bohr³")
    print("The error fell:", losses[-1] < losses[0])
