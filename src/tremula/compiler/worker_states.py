"""Where the record of each worker is: its generator's state and rounding mode, behind the arena.

uint64[n_tiles, n_workers, WORKER_WORDS]; codelets/python/random.py says what the words mean. A
table whose codelet needs it has one more column, after all others: the element address of the
record of the worker that runs each row. On the chip these are registers and take no tile memory.
"""

import numpy as np

from tremula.codelets.python.random import WORKER_WORDS
from tremula.codelets.spec import CodeletSpec, VertexBase
from tremula.poplar.target import Target
from tremula.poplar.tensors.variables import ALIGNMENT_BYTES

WORD_BYTES = 8


def states_shape(target: Target) -> tuple[int, int, int]:
    """Tiles, workers of a tile, words of a record."""
    return target.n_tiles, target.chip.n_workers, WORKER_WORDS


def n_states_bytes(target: Target) -> int:
    n_tiles, n_workers, n_words = states_shape(target)
    return n_tiles * n_workers * n_words * WORD_BYTES


def states_byte(end_of_scratch: int) -> int:
    """Where the records start, given where scratch space ends."""
    return -(-end_of_scratch // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def worker_state_column(
    spec: CodeletSpec, tile: np.ndarray, target: Target, first_byte: int
) -> np.ndarray:
    """int64[n]: the record of the worker of each row, `tile` being sorted.

    Vertices of a tile go to its workers in turn. Others have the tile to themselves: they get
    worker 0, and worker w of a MultiVertex is w records further on.
    """
    _, n_workers, n_words = states_shape(target)
    rows = np.arange(len(tile))
    is_shared = spec.base is VertexBase.VERTEX
    within = rows - np.searchsorted(tile, tile, "left") if is_shared else np.zeros_like(rows)
    record = tile.astype(np.int64) * n_workers + within % n_workers
    return first_byte // WORD_BYTES + record * n_words
