"""Distorted molecules with their energies, as columns; tools/make_dft_energies.py computed them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tremula.frontends.geometric.feeding.columns import Column, GraphColumns
from tremula.frontends.geometric.fixed_size.levels import GRAPH, NODE
from tremula.garden.models import datasets
from tremula.garden.models.datasets.qm9 import HARTREE_IN_EV

FILE = Path(datasets.__file__).parent / "data" / "dft_energies.npz"
TEST_EVERY = 5  # of these molecules one is not learnt from


@dataclass(frozen=True, slots=True)
class Energies:
    """Molecules to learn from and others, `y` in electronvolt beside what their atoms explain."""

    known: GraphColumns
    new: GraphColumns


def energies() -> Energies:
    with np.load(FILE) as arrays:
        z, pos, size, energy = (arrays[name] for name in ("z", "pos", "size", "energy"))
    start = np.concatenate([[0], np.cumsum(size)])
    elements, number = np.unique(z, return_inverse=True)
    counts = np.zeros((len(size), len(elements)))
    np.add.at(counts, (np.repeat(np.arange(len(size)), size), number), 1)
    is_new = np.arange(len(size)) % TEST_EVERY == 0
    energy = energy * HARTREE_IN_EV
    # What one atom of each element adds, by least squares: only what shapes change is left.
    of_atoms, *_ = np.linalg.lstsq(counts[~is_new], energy[~is_new], rcond=None)
    left = (energy - counts @ of_atoms).astype(np.float32)
    parts = []
    for chosen in (np.flatnonzero(~is_new), np.flatnonzero(is_new)):
        atoms = np.concatenate([np.arange(start[i], start[i + 1]) for i in chosen])
        columns = {
            "z": Column(z[atoms], NODE),
            "pos": Column(pos[atoms], NODE),
            "y": Column(left[chosen], GRAPH),
        }
        parts.append(GraphColumns(columns, np.concatenate([[0], np.cumsum(size[chosen])]), None))
    return Energies(*parts)
