"""SchNet on the molecules of QM9: padded, packed, and with a loader that feeds by columns.

    python schnet_qm9.py [--molecules N] [--epochs N] [--ipus N] [--cycles]

The model is PyG's SchNet, which learns the gap between HOMO and LUMO. A program for an IPU has
static shapes, so every batch has one size. Three ways to get there:

* padded: the same number of molecules in each batch, with room for the largest ones. SchNet finds
  neighbours itself, among all pairs of atoms of the batch;
* packed: as many molecules as fit; hardly any of the batch is padding;
* columns: the same packs from a data set in memory as columns, with neighbours found once for all
  molecules. No Python runs per molecule.
"""

# Run by the wide tests.
# Arguments when run as a test: --molecules 400 --width 16 --interactions 1 --device-iterations 2

import argparse
import time

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import SchNet, to_fixed_size

import poptorch
import poptorch_geometric as pg
import tremula as tr
from poptorch_geometric.columns import with_radius_graph
from tremula.garden.models.datasets.qm9 import GAP, qm9
from tremula.garden.models.molecules import SchNetOnEdges

MAX_ATOMS = 29


class TrainingModule(nn.Module):
    """SchNet with its loss; masked graphs are padding."""

    def __init__(self, model, batch_size):
        super().__init__()
        self.model = to_fixed_size(model, batch_size=batch_size)

    def forward(self, z, pos, batch, target, mask):
        prediction = self.model(z, pos, batch).view(-1)
        errors = functional.mse_loss(prediction, target, reduction="none")
        loss = torch.where(mask, errors, 0.0).sum() / mask.sum()
        return prediction, poptorch.identity_loss(loss, reduction="none")


def options_for(args):
    options = poptorch.Options()
    options.deviceIterations(args.device_iterations)
    options.replicationFactor(args.ipus)
    options.outputMode(poptorch.OutputMode.All)
    options.logCycleCount(args.cycles)
    return options


def train(name, model, loader, fields, args):
    """Epochs of training; prints the error and how fast it goes here and on IPUs."""
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    training = poptorch.trainingModel(model, loader.options, optimizer)
    n_graphs = n_slots = n_calls = 0
    for epoch in range(args.epochs):
        errors, begin = [], time.perf_counter()
        for data in loader:
            prediction, _ = training(*(data[field] for field in fields))
            mask = data.graphs_mask
            errors.append((prediction - data.y)[mask].abs())
            n_graphs, n_slots = n_graphs + int(mask.sum()), n_slots + len(data.nodes_mask)
            n_calls += 1
            if epoch == 0 and n_calls == 1:
                begin = time.perf_counter()  # the first call compiled
        seconds = time.perf_counter() - begin
        error = torch.cat(errors).mean()
        print(f"{name}, epoch {epoch}: MAE {error:.3f} eV")
    rate = len(torch.cat(errors)) / max(seconds, 1e-9)
    print(f"{name}: {n_graphs / n_calls:.1f} molecules per call, {rate:,.0f} per second here")
    if args.cycles:
        seconds = training.cycleCount() / tr.chip("bow").clock_hz
        rate = n_graphs / n_calls / seconds
        print(f"{name}: {rate:,.0f} molecules per second on {args.ipus} × Bow, modelled")


def on_pod16(model, columns, sizes, fields, args):
    """One call on all chips of a Pod16, each with its own packs, for the time it would take."""
    options = options_for(args)
    options.replicationFactor(16).deviceIterations(min(args.device_iterations, 4))
    loader = packed_by_columns(columns, sizes, options)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    training = poptorch.trainingModel(model, options, optimizer)
    data = next(iter(loader))
    training(*(data[field] for field in fields))
    seconds = training.cycleCount() / tr.chip("bow").clock_hz
    rate = int(data.graphs_mask.sum()) / seconds
    print(f"columns: {rate:,.0f} molecules per second on a Bow Pod16, modelled")


def packed_by_columns(columns, sizes, options):
    return pg.FixedSizeDataLoader(
        columns, sizes.num_graphs, shuffle=True, fixed_size_options=sizes,
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack, options=options,
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--molecules", type=int, help="all of them if not given")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--interactions", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=8, help="molecules, one of them padding")
    parser.add_argument("--device-iterations", type=int, default=32)
    parser.add_argument("--ipus", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument(
        "--cycles", action="store_true", help="compile for tiles, count cycles; also on a Pod16"
    )
    args = parser.parse_args()

    torch.manual_seed(0)
    cutoff = 6.0
    molecules = qm9(args.molecules).with_column("y", lambda y: y[:, GAP])
    print(f"{len(molecules)} molecules of up to {molecules.graph_sizes.nodes.max()} atoms")
    sizes = {"num_filters": args.width, "num_interactions": args.interactions}
    sizes |= {"hidden_channels": args.width, "num_gaussians": 50, "cutoff": cutoff}

    # Padded: room for the largest molecules. A list of graphs is what most scripts have.
    batch_size = args.batch_size
    padded = pg.FixedSizeOptions(MAX_ATOMS * (batch_size - 1) + 1, 0, batch_size)
    loader = pg.FixedSizeDataLoader(
        list(molecules), batch_size, shuffle=True, fixed_size_options=padded,
        options=options_for(args),
    )  # fmt: skip
    model = TrainingModule(SchNet(max_num_neighbors=MAX_ATOMS - 1, **sizes), batch_size)
    train("padded", model, loader, ("z", "pos", "batch", "y", "graphs_mask"), args)

    # Packed: the same nodes, more molecules.
    packed = pg.FixedSizeOptions(padded.num_nodes, 0, 2 * batch_size)
    loader = pg.FixedSizeDataLoader(
        list(molecules), 2 * batch_size, shuffle=True, fixed_size_options=packed,
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack, options=options_for(args),
    )  # fmt: skip
    model = TrainingModule(SchNet(max_num_neighbors=MAX_ATOMS - 1, **sizes), 2 * batch_size)
    train("packed", model, loader, ("z", "pos", "batch", "y", "graphs_mask"), args)

    # Columns: neighbours made once, packs by copies.
    columns = with_radius_graph(molecules, cutoff)
    n_edges = int(1.02 * padded.num_nodes * columns.edge_start[-1] / columns.node_start[-1])
    by_columns = pg.FixedSizeOptions(padded.num_nodes, n_edges, 2 * batch_size)
    loader = packed_by_columns(columns, by_columns, options_for(args))
    model = SchNetOnEdges(2 * batch_size, **sizes)
    fields = ("z", "pos", "edge_index", "batch", "y", "graphs_mask")
    train("columns", model, loader, fields, args)
    if args.cycles:
        on_pod16(SchNetOnEdges(2 * batch_size, **sizes), columns, by_columns, fields, args)
