"""Renews the pictures of docs/pyg-porting.md: molecules of QM9 in padded and in packed batches.

python tools/packing_pictures.py
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import poptorch_geometric as pg
from poptorch_geometric.columns import with_radius_graph
from tremula.garden.models.datasets.qm9 import qm9

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
COLOURS = "#4878a8", "#5b9a68", "#c98b4a", "#8a6fae", "#c44e52", "#6aa6b8", "#a8935c", "#7d8a97"
PADDING, INK, WIDTH, LEFT, RIGHT = "#e2e2e2", "#333", 860, 120, 100
N_MOLECULES, N_SHOWN, MAX_ATOMS, CUTOFF = 20_000, 6, 29, 2.0
N_PADDED, N_PACKED = 4, 8  # graphs of a batch, one of them padding


def main() -> None:
    torch.manual_seed(0)
    molecules = with_radius_graph(qm9(N_MOLECULES), CUTOFF)
    n_nodes = MAX_ATOMS * (N_PADDED - 1) + 1
    n_edges = 3 * n_nodes
    padded = pg.FixedSizeDataLoader(
        molecules,
        N_PADDED,
        shuffle=True,
        fixed_size_options=pg.FixedSizeOptions(n_nodes, n_edges, N_PADDED),
    )
    packed = pg.FixedSizeDataLoader(
        molecules, N_PACKED, shuffle=True,
        fixed_size_options=pg.FixedSizeOptions(n_nodes, n_edges, N_PACKED),
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack,
    )  # fmt: skip
    (IMAGES / "pyg-padding.svg").write_text(_padding(next(iter(padded))), encoding="utf-8")
    (IMAGES / "pyg-packing.svg").write_text(
        _packing({"padded": list(padded), "packed": list(packed)}), encoding="utf-8"
    )


def _padding(batch: Any) -> str:  # noqa: ANN401 - a batch has the attributes of its data
    """The nodes, edges and graphs of one batch, each slot in its graph's colour."""
    graph_of_edge = batch.batch[batch.edge_index[0]]
    tracks = {
        "nodes": torch.bincount(batch.batch, minlength=N_PADDED).tolist(),
        "edges": torch.bincount(graph_of_edge, minlength=N_PADDED).tolist(),
        "graphs": [1] * N_PADDED,
    }
    masks = {"nodes": batch.nodes_mask, "edges": batch.edges_mask, "graphs": batch.graphs_mask}
    parts = []
    for row, (name, counts) in enumerate(tracks.items()):
        y = 20 + 44 * row
        n_real = int(masks[name].sum())
        parts += _track(y, name, counts, n_real, f"{n_real} of {sum(counts)}")
    legend = "one colour for each molecule; grey: the padding graph, where the masks are False"
    parts.append(_text(LEFT, 20 + 44 * 3 + 4, legend))
    return _svg(160, parts)


def _packing(batches: dict[str, list[Any]]) -> str:
    """Node slots of the first batches of each way, and how many of all slots are used."""
    parts, y = [], 20
    for name, all_of_them in batches.items():
        used = sum(int(b.nodes_mask.sum()) for b in all_of_them)
        share = used / sum(len(b.nodes_mask) for b in all_of_them)
        n_calls = len(all_of_them)
        parts.append(
            _text(LEFT, y, f"{name}: {n_calls} batches, {share:.0%} of the node slots used", 13)
        )
        for number, batch in enumerate(all_of_them[:N_SHOWN]):
            counts = torch.bincount(batch.batch, minlength=batch.num_graphs).tolist()
            n_graphs = int(batch.graphs_mask.sum())
            n_real = int(batch.nodes_mask.sum())
            label = f"{n_graphs} molecules"
            parts += _track(y + 10 + 22 * number, f"batch {number}", counts, n_real, label, 16)
        y += 22 * N_SHOWN + 40
    return _svg(y - 16, parts)


def _track(
    y: int, name: str, counts: Sequence[int], n_real: int, label: str, height: int = 26
) -> list[str]:
    """Stretches of slots: one for each graph, grey from the first that pads."""
    unit = (WIDTH - LEFT - RIGHT) / sum(counts)
    parts, begin = [_text(10, y + height / 2 + 4, name)], 0
    for number, count in enumerate(counts):
        colour = COLOURS[number % len(COLOURS)] if begin < n_real else PADDING
        x, width = LEFT + begin * unit, max(count * unit - 1, 0)
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'
        )
        begin += count
    return [*parts, _text(WIDTH - RIGHT + 8, y + height / 2 + 4, label)]


def _text(x: float, y: float, text: str, size: int = 12) -> str:
    return f'<text x="{x}" y="{y:.0f}" font-size="{size}" fill="{INK}">{text}</text>'


def _svg(height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif">\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
