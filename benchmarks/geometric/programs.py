"""Molecules, batches and training steps that the figures share."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch_geometric.loader import DataLoader

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.columns import GraphColumns, with_radius_graph
from tremula.garden.models.datasets.qm9 import GAP, qm9
from tremula.garden.models.molecules import SchNetOnEdges, gat, gin

CUTOFF = 10.0
SCHNET = {"cutoff": CUTOFF}  # everything else as PyG's default, which the slides use
FIELDS = ("z", "pos", "edge_index", "batch", "y", "graphs_mask")


@cache
def molecules(n: int | None = None, cutoff: float = CUTOFF) -> GraphColumns:
    """Molecules of QM9 with their gap as target and edges within a cutoff."""
    return with_radius_graph(qm9(n).with_column("y", lambda y: y[:, GAP]), cutoff)


def sizes_for(columns: GraphColumns, n_molecules: int) -> pg.FixedSizeOptions:
    """A batch that about n molecules fill."""
    sizes = columns.graph_sizes
    n_largest = int(sizes.nodes.max()), int(sizes.edges.max())
    return pg.FixedSizeOptions(
        num_nodes=max(int(n_molecules * sizes.nodes.mean()), n_largest[0]) + 2,
        num_edges=max(int(1.02 * n_molecules * sizes.edges.mean()), n_largest[1]) + 2,
        num_graphs=n_molecules + n_molecules // 4 + 2,
    )


def packed_loader(
    columns: GraphColumns, sizes: pg.FixedSizeOptions, n_iterations: int, **kwargs
) -> pg.FixedSizeDataLoader:
    """Packs of molecules, several per call."""
    return pg.FixedSizeDataLoader(
        columns,
        sizes.num_graphs,
        shuffle=True,
        fixed_size_options=sizes,
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack,
        options=poptorch.Options().deviceIterations(n_iterations),
        **kwargs,
    )


def plain_loader(columns: GraphColumns, n_molecules: int, **kwargs) -> DataLoader:
    """PyG's own loader over a list of graphs."""
    return DataLoader(list(columns), batch_size=n_molecules, shuffle=True, **kwargs)


def schnet(num_graphs: int) -> nn.Module:
    """SchNet of the slides, on edges from the loader."""
    return SchNetOnEdges(num_graphs, **SCHNET)


MODELS: dict[str, tuple[Callable[[int], nn.Module], tuple[str, ...]]] = {
    "schnet": (schnet, FIELDS),
    "gin": (gin, tuple(f for f in FIELDS if f != "pos")),
    "gat": (gat, tuple(f for f in FIELDS if f != "pos")),
}


@dataclass(frozen=True)
class PlainStep:
    """A step as a PyG script writes it: batch to the device, zero, forward, backward, update."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    device: str

    @classmethod
    def of(cls, model: nn.Module, device: str = "cpu", compiled: str = "") -> "PlainStep":
        model = copy.deepcopy(model).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        if compiled:
            mode = None if compiled == "dynamic" else compiled
            model = torch.compile(model, mode=mode, dynamic=compiled == "dynamic")  # pyright: ignore[reportArgumentType, reportAssignmentType]
        return cls(model, optimizer, device)

    def __call__(self, batch: tuple[torch.Tensor, ...]) -> None:
        tensors = [tensor.to(self.device, non_blocking=True) for tensor in batch]
        self.optimizer.zero_grad()
        self.model(*tensors)[1].backward()
        self.optimizer.step()


def our_training(model: nn.Module, n_iterations: int) -> poptorch.PoplarExecutor:
    """The training step as a compiled model, several steps per call."""
    model = copy.deepcopy(model)
    options = poptorch.Options().deviceIterations(n_iterations)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return poptorch.trainingModel(model, options, optimizer)


def arguments(batch: Any, fields: tuple[str, ...]) -> tuple[torch.Tensor, ...]:  # noqa: ANN401
    """What a model is called with."""
    return tuple(batch[field] for field in fields)


def plain_arguments(batch: Any, fields: tuple[str, ...]) -> tuple[torch.Tensor, ...]:  # noqa: ANN401
    """The training step of a batch without padding: all its graphs are real."""
    batch.graphs_mask = torch.ones(batch.num_graphs, dtype=torch.bool)
    return arguments(batch, fields)
