"""Run operations on small machines with random tile maps: what all tests of PopLibs share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import tremula as tr
from tremula.base.types import QUARTER, QUARTER_METADATA, Type, as_type
from tremula.compiler.report.report import ProgramReport
from tremula.poplar.tensors.tensor import Tensor

N_TILES = 8


@dataclass(frozen=True)
class Call:
    """One call of an operation. Arrays of the type's dtype become tensors of the type."""

    function: Callable
    arrays: Sequence[np.ndarray]
    type: Type
    options: Mapping[str, object] = field(default_factory=dict)
    is_in_place: bool = False


def run_op(
    function: Callable,
    arrays: Sequence[np.ndarray],
    type: Type = tr.FLOAT,
    options: Mapping[str, object] | None = None,
    seed: int = 0,
    *,
    is_in_place: bool = False,
) -> tuple[np.ndarray, ...]:
    """What the operation gives for these arrays, laid out at random by `seed`."""
    call = Call(function, arrays, type, options or {}, is_in_place)
    return run_calls([call], seed)[0][0]


def run_calls(
    calls: Sequence[Call], seed: int = 0, *, is_strict: bool = True
) -> tuple[list[tuple[np.ndarray, ...]], ProgramReport]:
    """The results of many calls, in one graph, and its report.

    Strict mode runs each step's vertices in two orders, and finds what reads or writes wrongly.
    """
    random = np.random.default_rng(seed)
    graph = small_graph()
    sequence = tr.Sequence()
    inputs: dict[str, np.ndarray] = {}
    outputs: list[list[Tensor]] = []
    for number, call in enumerate(calls):
        tensors = []
        for index, array in enumerate(call.arrays):
            tensor = laid_out(graph, tensor_type(array, call.type), array.shape, random)
            handle = f"in-{number}-{index}"
            graph.create_host_write(handle, tensor)
            inputs[handle] = array
            tensors.append(tensor)
        given = call.function(graph, *tensors, sequence=sequence, **call.options)
        results = tensors[:1] if call.is_in_place else _as_list(given)
        outputs.append(results)
        for index, result in enumerate(results):
            graph.create_host_read(f"out-{number}-{index}", result)
    options = {"debug.strict": "true"} if is_strict else {}
    engine = tr.Engine(graph, sequence, options).load()
    for handle, array in inputs.items():
        engine.write_tensor(handle, array)
    engine.run()
    values = [
        tuple(np.asarray(engine.read_tensor(f"out-{n}-{i}")) for i in range(len(results)))
        for n, results in enumerate(outputs)
    ]
    return values, engine.report()


def _as_list(value: object) -> list[Tensor]:
    return list(value) if isinstance(value, tuple | list) else [value]


def small_graph(n_tiles: int = N_TILES) -> tr.Graph:
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=n_tiles).create_device())


def tensor_type(array: np.ndarray, type: Type) -> Type:
    """The given type if the array is stored as it, else the type of its dtype."""
    return type if array.dtype == type.dtype else as_type(array.dtype)


def laid_out(
    graph: tr.Graph, type: Type, shape: Sequence[int], random: np.random.Generator
) -> Tensor:
    """A new tensor with its dimensions in a random order in memory, and a random tile map."""
    order = random.permutation(len(shape)) if random.random() < 0.3 else np.arange(len(shape))
    metadata = None
    if type is QUARTER:
        byte = tr.pack_metadata(tr.QuarterFormat.F143, 0)
        metadata = graph.add_constant(QUARTER_METADATA, [], byte)
    stored = graph.add_variable(type, [shape[d] for d in order], "x", metadata=metadata)
    map_at_random(graph, stored, random)
    return stored.dim_shuffle(np.argsort(order).tolist())


def map_at_random(graph: tr.Graph, tensor: Tensor, random: np.random.Generator) -> None:
    """Linear, on one tile, in a few pieces, or scattered."""
    n, n_tiles = tensor.n_elems, graph.target.n_tiles
    kind = random.integers(4)
    if kind == 0 or n < 2:
        graph.set_tile_mapping(tensor, int(random.integers(n_tiles)))
    elif kind == 1:
        graph.map_linearly(tensor, min_elems=1, grain=1)
    else:
        n_pieces = int(min(n, n_tiles - 1 if kind == 2 else 3 * n_tiles))
        cuts = np.sort(random.choice(np.arange(1, n), n_pieces - 1, replace=False))
        begin, end = np.concatenate(([0], cuts)), np.concatenate((cuts, [n]))
        pick = random.permutation(n_tiles) if kind == 2 else random.integers(n_tiles, size=n_pieces)
        mapping = tr.TileMapping(begin, end, np.asarray(pick[:n_pieces], np.int64), n_tiles)
        graph.set_tile_mapping(tensor, mapping)


DEFAULT_TOLERANCE = {"FLOAT": 1e-5, "HALF": 4e-3}


def assert_close(got: np.ndarray, expected: np.ndarray, tolerance: float, where: str) -> None:
    """Equal within a share of the largest finite expected value; NaN and infinities must agree."""
    expected = np.asarray(expected)
    assert got.shape == expected.shape, f"{where}: shape {got.shape}, expected {expected.shape}"
    assert got.dtype == expected.dtype, f"{where}: {got.dtype}, expected {expected.dtype}"
    if not tolerance or got.dtype.kind != "f":
        same = np.array_equal(got, expected, equal_nan=got.dtype.kind == "f")
        assert same, f"{where}: got {got.ravel()[:8]}, expected {expected.ravel()[:8]}"
        return
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = b[np.isfinite(b)]
    scale = np.abs(finite).max() if finite.size else 0.0
    close = np.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    assert close.all(), f"{where}: got {a[~close][:8]}, expected {b[~close][:8]}"
