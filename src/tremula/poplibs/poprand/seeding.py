"""Seeds: all workers start from a seed tensor, or do so for one operation and then go on."""

from collections.abc import Callable

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import UNSIGNED_INT, UNSIGNED_LONGLONG
from tremula.codelets.python.random import STATE_WORDS
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.poprand.codelets import (
    STREAM_GROUP,
    restore_seed_codelet,
    save_and_set_seed_codelet,
    set_seed_codelet,
)
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import PoplibsError

MAX_MODIFIER = 2**32 - 1


def set_seed(
    graph: Graph, seed: Tensor, seed_modifier: int, sequence: Sequence, name: str = ""
) -> None:
    """Start the generators of all workers of all tiles from a seed of two UNSIGNED_INT."""
    check_seed(seed, seed_modifier)
    tiles = np.arange(graph.target.n_tiles)
    fields = _seed_fields(graph, seed, seed_modifier, tiles)
    run_vertices(graph, set_seed_codelet(), fields, tiles, sequence, name or "setSeed")


def with_seed(
    graph: Graph,
    seed: Tensor | None,
    seed_modifier: int,
    tiles: np.ndarray,
    sequence: Sequence,
    name: str,
    generate: Callable[[], None],
) -> None:
    """Let `generate` add its steps between seeding these tiles and restoring their states."""
    if seed is None:
        generate()
        return
    n, n_words = len(tiles), STATE_WORDS * graph.target.n_worker_contexts
    saved = graph.add_variable(UNSIGNED_LONGLONG, [n, n_words], f"{name}/hwSeeds")
    begin = np.arange(n, dtype=np.int64) * n_words
    mapping = TileMapping(begin, begin + n_words, tiles, graph.target.n_tiles)
    graph.set_tile_mapping(saved, mapping)
    fields = _seed_fields(graph, seed, seed_modifier, tiles) | {"saved": saved}
    run_vertices(graph, save_and_set_seed_codelet(), fields, tiles, sequence, f"{name}/setSeed")
    generate()
    run_vertices(
        graph, restore_seed_codelet(), {"saved": saved}, tiles, sequence, f"{name}/restoreSeed"
    )


def _seed_fields(
    graph: Graph, seed: Tensor, seed_modifier: int, tiles: np.ndarray
) -> dict[str, object]:
    """Each tile has whole groups of STREAM_GROUP streams, at least one for each worker."""
    n_groups = -(-graph.target.n_worker_contexts // STREAM_GROUP)
    return {
        "seed": seed.flatten().expand([0]).broadcast(len(tiles), 0),  # the same for every vertex
        "modifier": seed_modifier,
        "stream_group": tiles * n_groups,
    }


def check_seed(seed: Tensor | None, seed_modifier: int) -> None:
    if seed is not None and (seed.type is not UNSIGNED_INT or seed.n_elems != 2):
        raise PoplibsError(
            f"a seed has two elements of unsigned int, got {list(seed.shape)} of {seed.type}.",
            source=user_source(),
            hint="add it with add_variable(UNSIGNED_INT, [2]), or give None",
        )
    if not 0 <= seed_modifier <= MAX_MODIFIER:
        raise PoplibsError(
            f"the seed modifier must be of 0 to {MAX_MODIFIER}, got {seed_modifier}.",
            source=user_source(),
            hint="number the uses of a seed: 0, 1, 2, …",
        )
