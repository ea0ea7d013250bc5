"""The programs that the PopLibs figures measure: each an engine with its data loaded."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tremula as tr
from tremula.poplibs import poplin, popnn, popops
from tremula.poplibs.popops.elementwise.expr import Const, _1, _2
from tremula.poplibs.popops.slicing.embedding_plan import plan as plan_lookups
from tremula.poplibs.popops.slicing.layout import (
    create_indices_tensor,
    create_slice_tensor,
    create_sliceable_tensor,
)
from tremula.poplibs.popops.slicing.multi_slice import multi_slice
from tremula.poplibs.popops.slicing.multi_update import multi_update_add

# Large programs are measured for their speed here, whether or not they would fit a chip.
OPTIONS = {"debug.allowOutOfMemory": "true"}


@dataclass(frozen=True, slots=True)
class Measured:
    """An engine that is loaded, and the arrays it was given."""

    engine: tr.Engine
    arrays: dict[str, np.ndarray]

    def result(self) -> np.ndarray:
        return self.engine.read_tensor("result")


Build = Callable[[tr.Graph, tr.Sequence], tuple[dict[str, tr.Tensor], tr.Tensor]]


def measured(build: Build, arrays: dict[str, np.ndarray]) -> Measured:
    """Build on one Bow, compile, load, and write the arrays to the tensors of their names."""
    graph, sequence = tr.Graph(tr.IPUModel("bow").create_device()), tr.Sequence()
    inputs, result = build(graph, sequence)
    for name, tensor in inputs.items():
        graph.create_host_write(name, tensor)
    graph.create_host_read("result", result)
    engine = tr.Engine(graph, sequence, OPTIONS).load()
    for name, array in arrays.items():
        engine.write_tensor(name, array)
    return Measured(engine, arrays)


def product(n: int) -> Measured:
    """[n, n] x [n, n] floats."""
    random = np.random.default_rng(0)

    def build(graph: tr.Graph, sequence: tr.Sequence) -> tuple[dict[str, tr.Tensor], tr.Tensor]:
        left = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, (n, n), (n, n), "a")
        right = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, (n, n), (n, n), "b")
        return {"a": left, "b": right}, poplin.mat_mul(graph, left, right, sequence)

    return measured(build, {name: random.random((n, n), np.float32) for name in "ab"})


def scaled_sum(n: int) -> Measured:
    """A·x + y of n floats, as one expression."""
    random = np.random.default_rng(0)

    def build(graph: tr.Graph, sequence: tr.Sequence) -> tuple[dict[str, tr.Tensor], tr.Tensor]:
        x, y = (graph.add_variable(tr.FLOAT, [n], name, mapping="linear") for name in "xy")
        return {"x": x, "y": y}, popops.map(graph, Const(2.5) * _1 + _2, [x, y], sequence)

    return measured(build, {name: random.random(n, np.float32) for name in "xy"})


def _lookup_arrays(n_rows: int, n_lookups: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, n_rows, n_lookups).astype(np.uint32)


# At this size the tiles are too small for all of it; the figure is about speed on this computer.
WHATEVER_FITS = {"available_memory_proportion": 100.0}


def gather(n_rows: int, row_size: int, n_lookups: int) -> Measured:
    def build(graph: tr.Graph, sequence: tr.Sequence) -> tuple[dict[str, tr.Tensor], tr.Tensor]:
        options = {"used_for_update": False, **WHATEVER_FITS}
        plan = plan_lookups(graph, tr.FLOAT, n_rows, row_size, n_lookups, options)
        shape = [n_rows, row_size]
        table = create_sliceable_tensor(graph, tr.FLOAT, shape, name="table", plan=plan)
        indices = create_indices_tensor(graph, n_lookups, name="indices")
        rows = multi_slice(graph, table, indices, sequence, plan=plan)
        return {"table": table, "indices": indices}, rows

    table = np.random.default_rng(0).random((n_rows, row_size), np.float32)
    indices = _lookup_arrays(n_rows, n_lookups)
    return measured(build, {"table": table, "indices": indices[:, None]})


def scatter_add(n_rows: int, row_size: int, n_lookups: int) -> Measured:
    def build(graph: tr.Graph, sequence: tr.Sequence) -> tuple[dict[str, tr.Tensor], tr.Tensor]:
        options = {"used_for_slice": False, **WHATEVER_FITS}
        plan = plan_lookups(graph, tr.FLOAT, n_rows, row_size, n_lookups, options)
        shape = [n_rows, row_size]
        table = create_sliceable_tensor(graph, tr.FLOAT, shape, name="table", plan=plan)
        rows = create_slice_tensor(
            graph, tr.FLOAT, shape, [0], [1], n_lookups, name="rows", plan=plan
        )
        indices = create_indices_tensor(graph, n_lookups, name="indices")
        multi_update_add(graph, table, rows, indices, sequence, scale=1.0, plan=plan)
        return {"table": table, "rows": rows, "indices": indices}, table

    random = np.random.default_rng(0)
    arrays = {
        "table": np.zeros((n_rows, row_size), np.float32),
        "rows": random.random((n_lookups, 1, row_size), np.float32),
        "indices": _lookup_arrays(n_rows, n_lookups)[:, None],
    }
    return measured(build, arrays)


@dataclass(frozen=True, slots=True)
class Convolved:
    """Forward and both gradients of a convolution; results by name."""

    engine: tr.Engine
    arrays: dict[str, np.ndarray]
    params: poplin.ConvParams


def convolution(n_batch: int, n_channels: int, n_pixels: int) -> Convolved:
    """3x3, padded, as many channels out as in: result, gradient of the input, of the weights."""
    params = poplin.ConvParams(
        type=tr.FLOAT, n_batch=n_batch, field_shape=(n_pixels, n_pixels), kernel_shape=(3, 3),
        n_in_chans=n_channels, n_out_chans=n_channels, padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    graph, sequence = tr.Graph(tr.IPUModel("bow").create_device()), tr.Sequence()
    acts = poplin.create_input(graph, params, "acts")
    weights = poplin.create_weights(graph, params, "weights")
    out = poplin.convolution(graph, acts, weights, params, sequence)
    deltas = graph.clone(out, "deltas")
    back = poplin.convolution(
        graph, deltas, weights, poplin.input_gradient_params(params), sequence,
        transpose_and_flip_weights=True,
    )  # fmt: skip
    update = poplin.calculate_weight_deltas(graph, deltas, acts, params, sequence)
    for name, tensor in (("acts", acts), ("weights", weights), ("deltas", deltas)):
        graph.create_host_write(name, tensor)
    for name, tensor in (("out", out), ("back", back), ("update", update)):
        graph.create_host_read(name, tensor)
    engine = tr.Engine(graph, sequence, OPTIONS).load()
    random = np.random.default_rng(0)
    shapes = {"acts": acts.shape, "weights": weights.shape, "deltas": deltas.shape}
    arrays = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    for name, array in arrays.items():
        engine.write_tensor(name, array)
    return Convolved(engine, arrays, params)


def deep_chain(n_layers: int, width: int, n_rows: int) -> tr.Executable:
    """Layers of product, bias, GELU and layer norm, spread over the four chips of a Pod4."""
    graph, sequence = tr.Graph(tr.IPUModel("bow", 4).create_device()), tr.Sequence()
    shapes = (n_rows, width), (width, width)
    n_tiles, n_per_chip = graph.target.tiles_per_ipu, -(-n_layers // 4)
    x: tr.Tensor | None = None
    for first in range(0, n_layers, n_per_chip):
        tile = first // n_per_chip * n_tiles
        on_chip = graph.create_virtual_graph(tile, tile + n_tiles)
        begin = poplin.create_mat_mul_input_lhs(on_chip, tr.FLOAT, *shapes, f"x{first}")
        if x is not None:
            sequence.add(tr.Copy(x, begin))
        x = begin
        for layer in range(first, min(first + n_per_chip, n_layers)):
            x = _layer(on_chip, x, sequence, f"layer{layer}")
    return tr.compile_graph(graph, sequence, OPTIONS)


def _layer(graph: tr.Graph, x: tr.Tensor, sequence: tr.Sequence, name: str) -> tr.Tensor:
    width = x.shape[1]
    weights = poplin.create_mat_mul_input_rhs(
        graph, tr.FLOAT, x.shape, (width, width), f"{name}/weights"
    )
    bias, gamma, beta = (
        graph.add_variable(tr.FLOAT, [width], f"{name}/{what}", mapping="linear")
        for what in ("bias", "gamma", "beta")
    )
    y = poplin.mat_mul(graph, x, weights, sequence, f"{name}/product")
    popops.add_in_place(graph, y, bias, sequence, f"{name}/bias")
    popnn.gelu_in_place(graph, y, sequence, f"{name}/gelu")
    mean, inverse = popnn.layer_norm_statistics(graph, y, sequence, epsilon=1e-5)
    return popnn.layer_normalise(graph, y, gamma, beta, mean, inverse, sequence)[0]
