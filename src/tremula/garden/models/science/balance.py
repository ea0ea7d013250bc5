"""Uneven work spread evenly: the longest first, each to the tile with the least to do."""

import heapq

import numpy as np


def balanced_tiles(work: np.ndarray, n_tiles: int) -> np.ndarray:
    """int64[n]: a tile for each piece of work; no tile has 4/3 of what the best spread needs."""
    tiles = np.zeros(len(work), np.int64)
    load = [(0.0, tile) for tile in range(n_tiles)]
    for piece in np.argsort(-work, kind="stable").tolist():
        done, tile = heapq.heappop(load)
        tiles[piece] = tile
        heapq.heappush(load, (done + float(work[piece]), tile))
    return tiles
