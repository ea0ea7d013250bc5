"""Lowerings of marks: identities, one of which prints."""

import json

from tremula.ir.lowering.table import lowers
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.ops.markers import MARKERS
from tremula.poplar.programs import PrintTensor
from tremula.poplar.tensors.print_format import PrintTensorFmt
from tremula.poplar.tensors.tensor import Tensor

_PRINT = "tremula::print_tensor"


@lowers(*sorted(MARKERS - {_PRINT}), calls="")
def mark(_tiles: Tiles, x: Tensor, *_what: object) -> Tensor:
    return x


@lowers(_PRINT, calls="PrintTensor")
def print_tensor(tiles: Tiles, x: Tensor, title: str, form: str, _gradient: bool) -> Tensor:
    """`form` is JSON with fields of PrintTensorFmt; empty means its defaults."""
    fmt = PrintTensorFmt(**json.loads(form)) if form else None
    tiles.sequence.add(PrintTensor(title, x, fmt))
    return x
