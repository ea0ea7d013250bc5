"""X-drop extension on tiles: one pair of sequences per worker, each as long as its pair needs.

An extension starts at the beginning of both sequences and goes on along antidiagonals. A cell whose
score is more than `x` below the best so far is dropped; when an antidiagonal is empty, it is over.
Pairs that are alike continue to their ends, others stop soon: work differs by orders of magnitude,
which does not matter to workers that run separate programs. Only three antidiagonals are stored.

    Z. Zhang, S. Schwartz, L. Wagner, W. Miller, A greedy algorithm for aligning DNA sequences, 2000
"""

from typing import Any

import numpy as np

import tremula as tr
from tremula import InOut, Input, Output, Vector, Vertex, int32
from tremula.base.errors import InvalidOption
from tremula.garden.models.science.balance import balanced_tiles

MATCH, MISMATCH, GAP = 1, -1, -1
NOTHING = -(2**28)  # a score that no gap or match makes good


class XDrop(Vertex):
    """The best score of an extension, where it ends, and the cells that were looked at."""

    first: Input[Vector[tr.UNSIGNED_CHAR]]
    second: Input[Vector[tr.UNSIGNED_CHAR]]
    scores: InOut[Vector[int32]]  # three antidiagonals, each of len(first) + 2 cells
    result: Output[Vector[int32]]  # score, letters of first, letters of second, cells
    x: int32  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        n, m = len(self.first), len(self.second)
        size = n + 2
        scores = self.scores
        for i in range(3 * size):
            scores[i] = NOTHING
        scores[1] = 0  # row i is stored at i + 1, so that row -1 can be read
        best, best_row, best_diagonal, n_cells = 0, 0, 0, 0
        low, high, diagonal = 0, 0, 0
        while low <= high and diagonal < n + m:
            diagonal += 1
            now, before, two_before = (
                diagonal % 3 * size,
                (diagonal + 2) % 3 * size,
                (diagonal + 1) % 3 * size,
            )
            begin, end = max(low, diagonal - m), min(high + 1, diagonal, n)
            new_low, new_high = n + 1, -1
            limit = best - self.x
            for i in range(begin, end + 1):
                j = diagonal - i
                score = max(scores[before + i], scores[before + i + 1]) + GAP
                if i > 0 and j > 0:
                    same = self.first[i - 1] == self.second[j - 1]
                    score = max(score, scores[two_before + i] + (MATCH if same else MISMATCH))
                if score < limit:
                    score = NOTHING
                else:
                    new_low, new_high = min(new_low, i), i
                    if score > best:
                        best, best_row, best_diagonal = score, i, diagonal
                scores[now + i + 1] = score
            # The next two antidiagonals read one cell beyond both ends.
            scores[now + begin] = NOTHING
            scores[now + end + 2 if end + 2 < size else now + begin] = NOTHING
            n_cells += max(0, end - begin + 1)
            low, high = new_low, new_high
        self.result[0] = best
        self.result[1] = best_row
        self.result[2] = best_diagonal - best_row
        self.result[3] = n_cells


def x_drop_engine(
    pairs: list[tuple[np.ndarray, np.ndarray]], x: int, n_tiles: int, chip: str = "bow"
) -> tr.Engine:
    """The pairs are in the executable. Handle to read: results [n, 4]."""
    if x < 0 or not pairs or any(0 in (len(a), len(b)) for a, b in pairs):
        raise InvalidOption(
            f"{len(pairs)} pairs and x = {x}: x must not be negative, and sequences not empty.",
            hint="leave out empty sequences",
        )
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    # What an extension will need is not known; longer pairs may need more.
    work = np.array([len(a) + len(b) for a, b in pairs], float)
    tiles = balanced_tiles(work, n_tiles)
    results = graph.add_variable(tr.INT, [len(pairs), 4], "results")
    compute_set = graph.add_compute_set("extensions")
    for i in np.argsort(-work, kind="stable").tolist():
        (first, second), tile = pairs[i], int(tiles[i])
        graph.set_tile_mapping(results[i], tile)
        fields: dict[str, Any] = {"result": results[i], "x": x}
        for name, letters in (("first", first), ("second", second)):
            variable = graph.add_variable(tr.UNSIGNED_CHAR, [len(letters)], name, mapping=tile)
            graph.set_initial_value(variable, letters)
            fields[name] = variable
        n_scores = 3 * (len(first) + 2)
        fields["scores"] = graph.add_variable(tr.INT, [n_scores], "scores", mapping=tile)
        graph.add_vertex(compute_set, XDrop, fields, tile=tile)
    graph.create_host_read("results", results)
    return tr.Engine(graph, tr.Execute(compute_set))
