"""Molecules, batches and training steps that the figures share."""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.loader import DataLoader

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.columns import Column, GraphColumns, with_radius_graph
from tremula.garden.models.datasets.qm9 import GAP, qm9
from tremula.garden.models.force_fields import POTENTIALS, WithForces
from tremula.garden.models.molecules import SchNetOnEdges, gat, gin

CUTOFF = 10.0
SCHNET = {"cutoff": CUTOFF}  # everything else as PyG's default, which the slides use
FIELDS = ("z", "pos", "edge_index", "batch", "y", "graphs_mask")
FORCE_FIELDS = ("z", "pos", "edge_index", "batch", "y", "force", "graphs_mask")
_NEAR_CUTOFF = 5.0  # of models with vectors and tensors


@cache
def molecules(n: int | None = None, cutoff: float = CUTOFF) -> GraphColumns:
    """Molecules of QM9 with their gap as target and edges within a cutoff; else made ones."""
    if find_spec("qm9pack") is None:
        print("qm9pack is not installed: molecules are made at random", file=sys.stderr)
        return with_radius_graph(made_molecules(n or 130_831), cutoff)
    return with_radius_graph(qm9(n).with_column("y", lambda y: y[:, GAP]), cutoff)


def made_molecules(n: int) -> GraphColumns:
    """Random chains of atoms, as many as molecules of QM9 have, with a random target."""
    random = np.random.default_rng(0)
    sizes = np.clip(np.rint(random.normal(18.0, 2.95, n)), 4, 29).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    steps = random.normal(size=(starts[-1], 3))
    steps *= 1.3 / np.linalg.norm(steps, axis=1, keepdims=True)  # the length of a bond
    columns = {
        "z": Column(random.choice([1, 6, 7, 8, 9], starts[-1]), "node"),
        "pos": Column(np.cumsum(steps, 0).astype(np.float32), "node"),
        "y": Column(random.normal(size=n).astype(np.float32), "graph"),
    }
    return GraphColumns(columns, starts, None)


@cache
def molecules_with_forces(n: int, cutoff: float) -> GraphColumns:
    """Molecules with a force on each atom: a smooth function of its position, for timing only."""
    made = molecules(n, cutoff)
    pos = made.columns["pos"]
    force = Column(np.sin(pos.values).astype(np.float32), pos.level)
    return GraphColumns(made.columns | {"force": force}, made.node_start, made.edge_start)


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


@dataclass(frozen=True)
class MoleculeModel:
    """A model of molecules, what it takes of a batch, and the molecules that it is trained on."""

    make: Callable[[int], nn.Module]  # for a number of graphs
    fields: tuple[str, ...]
    molecules: Callable[[int], GraphColumns] = molecules


def _with_forces(name: str, cutoff: float) -> MoleculeModel:
    options = {} if name == "egnn" else {"cutoff": cutoff}  # EGNN has only edges
    return MoleculeModel(
        lambda num_graphs: WithForces(POTENTIALS[name](num_graphs, **options)),
        FORCE_FIELDS,
        partial(molecules_with_forces, cutoff=cutoff),
    )


MODELS: dict[str, MoleculeModel] = {
    "schnet": MoleculeModel(schnet, FIELDS),
    "gin": MoleculeModel(gin, tuple(f for f in FIELDS if f != "pos")),
    "gat": MoleculeModel(gat, tuple(f for f in FIELDS if f != "pos")),
}
WITH_FORCES: dict[str, MoleculeModel] = {
    "schnet-forces": _with_forces("schnet", CUTOFF),
    "painn-forces": _with_forces("painn", _NEAR_CUTOFF),
    "egnn-forces": _with_forces("egnn", _NEAR_CUTOFF),
    "mace-forces": _with_forces("mace", _NEAR_CUTOFF),
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
            mode = None if compiled in ("dynamic", "default") else compiled
            model = torch.compile(model, mode=mode, dynamic=compiled == "dynamic")  # pyright: ignore[reportArgumentType, reportAssignmentType]
        return cls(model, optimizer, device)

    def __call__(self, batch: tuple[torch.Tensor, ...]) -> None:
        tensors = [tensor.to(self.device, non_blocking=True) for tensor in batch]
        self.optimizer.zero_grad()
        self.model(*tensors)[-1].backward()
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
