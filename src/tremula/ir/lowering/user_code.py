"""Lowerings of code that a script brings: custom operations, host functions, marks and prints."""

import json
from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import fx

from tremula.base.print_format import PrintTensorFmt
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.tiles import HOST_FUNCTIONS, Tiles
from tremula.ir.lowering.types import narrow, tile_type
from tremula.ir.op_table import lowers
from tremula.ir.ops.custom import registered
from tremula.ir.ops.host_calls import code_of
from tremula.ir.ops.markers import MARKERS
from tremula.poplar.programs import Call, PrintTensor
from tremula.poplar.tensors.tensor import Tensor

_PRINT = "tremula::print_tensor"


@lowers("tremula::custom_op", calls="the vertices its registration adds")
def custom_op(
    tiles: Tiles, inputs: list[Tensor], key: str, _outputs: str, attributes: str
) -> list[Tensor]:
    operation = registered(key)
    if operation.tiles is None:
        raise UnsupportedOperations(
            f"Unsupported ops found in compiled model: [{key}]. Not all operations are supported"
            " yet by the tile program: this custom operation says nothing about tiles.",
            hint="give tremula.custom_operation(…, tiles=fn) (docs/custom_ops.md)",
        )
    return list(operation.tiles(tiles, list(inputs), json.loads(attributes)))


@lowers("tremula::host_call", calls="a host function")
def host_call(tiles: Tiles, inputs: list[Tensor], key: str, _outputs: str) -> list[Tensor]:
    """Tensors travel to the host and back; the engine finds the code by its handle."""
    outputs = [tiles.new(tuple(x.shape), tile_type(x.dtype)) for x in tiles.node.meta["val"]]
    flat_in = [x.flatten() for x in inputs]
    flat_out = [x.flatten() for x in outputs]
    kinds = [[(x.type, x.n_elems) for x in group] for group in (flat_in, flat_out)]
    functions = tiles.shared.setdefault(HOST_FUNCTIONS, {})
    handle = f"{key}@{tiles.chip}.{len(functions)}"
    functions[handle] = _array_function(tiles.node, key)
    function = tiles.graph.top.add_host_function(handle, *kinds)
    tiles.sequence.add(Call(function, flat_in, flat_out))
    return outputs


def _array_function(node: fx.Node, key: str) -> Callable[[list, list], None]:
    """The user's code as the engine calls it: on flat arrays, results written in place."""
    wanted = [source.meta["val"] for source in cast("list[fx.Node]", node.args[0])]
    code = code_of(key)

    def run(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        tensors = [
            torch.from_numpy(np.array(flat)).reshape(tuple(fake.shape)).to(fake.dtype)
            for flat, fake in zip(inputs, wanted, strict=True)
        ]
        with torch.no_grad():
            matches = code.run(tensors)
        for target, result in zip(outputs, matches, strict=True):
            target[:] = narrow(result).reshape(-1)

    return run


@lowers(*sorted(MARKERS - {_PRINT}), calls="")
def mark(_tiles: Tiles, x: Tensor, *_what: object) -> Tensor:
    return x


@lowers(_PRINT, calls="PrintTensor")
def print_tensor(tiles: Tiles, x: Tensor, title: str, form: str, _gradient: bool) -> Tensor:
    """`form` is JSON with fields of PrintTensorFmt; empty means its defaults."""
    fmt = PrintTensorFmt(**json.loads(form)) if form else None
    tiles.sequence.add(PrintTensor(title, x, fmt))
    return x
