"""Scales of 8-bit floats that a program has as numbers: a run stops at one out of range."""

from tremula.frontends.popart.exceptions import poplar_application_runtime_error
from tremula.frontends.popxl.core.host_data import array_of
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.tensor import Constant, Variable
from tremula.frontends.popxl.fp8_utils import MAX_LOG2_SCALE, MIN_LOG2_SCALE


def known_scales(ir: Ir) -> list[tuple[str, Constant | Variable]]:
    """Operations with a power of two that the host knows: their kinds, and the scales."""
    result = []
    for op in ir.ops_of_all_graphs():
        index = dict(op.layout).get("log2_scale")
        scale = op.inputs[index] if isinstance(index, int) else None
        if isinstance(scale, Constant | Variable):
            result.append((op.kind, scale))
    return result


def check_scales(scales: list[tuple[str, Constant | Variable]]) -> None:
    """Raise if an operation's power of two does not fit the 6 bits that hold it."""
    for kind, scale in scales:
        value = int(array_of(scale.data).reshape(-1)[0])
        if not MIN_LOG2_SCALE <= value <= MAX_LOG2_SCALE:
            raise poplar_application_runtime_error(
                f"{kind}: log2_scale must be from {MIN_LOG2_SCALE} to {MAX_LOG2_SCALE}, got"
                f" {value}",
                hint="set the session option throwIfLog2ScaleTensorNotInRange to False to go on",
            )
