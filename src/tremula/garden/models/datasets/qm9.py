"""QM9, the 130,831 molecules of the package qm9pack, as columns; no download."""

import csv
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tremula.base.errors import InvalidOption
from tremula.base.storage.cache_dir import cache_dir
from tremula.frontends.geometric.feeding.columns import Column, GraphColumns
from tremula.frontends.geometric.fixed_size.levels import GRAPH, NODE

HARTREE_IN_EV = 27.211386245988
_ATOMIC_NUMBER = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
# The targets in PyG's order, and what makes them PyG's units; the gap is number 4.
TARGETS = {
    "Dipole_debye": 1.0,
    "Polarizability_bohr3": 1.0,
    "HOMO_au": HARTREE_IN_EV,
    "LUMO_au": HARTREE_IN_EV,
    "HOMO_LUMO_gap_au": HARTREE_IN_EV,
    "R2_bohr2": 1.0,
    "ZPVE_au": HARTREE_IN_EV,
    "InternalEnergy_0K_au": HARTREE_IN_EV,
    "InternalEnergy_298K_au": HARTREE_IN_EV,
    "Enthalphy_298K_au": HARTREE_IN_EV,
    "GibbsFreeEnergy_298K_au": HARTREE_IN_EV,
    "Heatcapacity_Cv_cal_mol_K": 1.0,
}
GAP = list(TARGETS).index("HOMO_LUMO_gap_au")


def qm9(n_molecules: int | None = None, folder: str | Path | None = None) -> GraphColumns:
    """Atoms `z`, positions `pos` and targets `y` [1, 12] of molecules, in PyG's units.

    All molecules are read once and kept as a file of columns in `folder` (the cache of Tremula);
    a few thousand are read at once.
    """
    source = _source()
    if n_molecules is not None:
        return _read(source, n_molecules)
    path = _cache_file(folder)
    if path.exists():
        return GraphColumns.load(path)
    columns = _read(source, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns.save(path)
    return columns


def _source() -> Path:
    # qm9pack cannot be imported without setuptools' old pkg_resources: only its data are used.
    spec = find_spec("qm9pack")
    if spec is None or not spec.submodule_search_locations:
        raise InvalidOption(
            "the molecules of QM9 are in the package qm9pack, which is not installed.",
            hint="pip install 'tremula[geometric]'",
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _cache_file(folder: str | Path | None) -> Path:
    return (cache_dir() / "data" if folder is None else Path(folder)) / "qm9-1.npz"


def _read(source: Path, n_molecules: int | None) -> GraphColumns:
    symbols: list[str] = []
    positions: list[str] = []
    targets: list[list[str]] = []
    for part in (1, 2, 3):
        with (source / f"qm9_part{part}.csv").open(encoding="ascii", newline="") as file:
            for row in csv.DictReader(file):
                if len(symbols) == n_molecules:
                    break
                symbols.append(row["Elements"])
                positions.append(row["XYZ_Ang"])
                targets.append([row[name] for name in TARGETS])
    return _columns(symbols, positions, targets)


def _columns(symbols: list[str], positions: list[str], targets: list[list[str]]) -> GraphColumns:
    sizes = np.array([text.count(",") + 1 for text in symbols])
    letters = "".join(symbols).translate({ord(c): None for c in "[]', "})
    table = np.zeros(128, np.int64)
    for symbol, number in _ATOMIC_NUMBER.items():
        table[ord(symbol)] = number
    numbers = table[np.frombuffer(letters.encode("ascii"), np.uint8)]
    flat = ",".join(positions).translate({ord(c): None for c in "[]' "})
    pos = np.fromstring(flat, np.float64, sep=",").reshape(-1, 3).astype(np.float32)
    y = np.array(targets, np.float64) * np.array(list(TARGETS.values()))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    columns = {
        "z": Column(numbers, NODE),
        "pos": Column(pos, NODE),
        "y": Column(y.astype(np.float32), GRAPH),
    }
    return GraphColumns(columns, starts, None)
