"""What popnn's operations require of their operands; errors name the user's line."""

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.registry import PoplibsError


def check_float(op: str, *tensors: Tensor) -> None:
    """Refuse operands that are not float or half."""
    for tensor in tensors:
        if tensor.type not in (FLOAT, HALF):
            raise PoplibsError(
                f"{op} does not work on {tensor.type}.",
                source=user_source(),
                hint="it works on float and half: cast the operand",
            )


def check_same_shape(op: str, *tensors: Tensor) -> None:
    """Refuse operands that differ in shape or type."""
    first = tensors[0]
    for other in tensors[1:]:
        if other.shape != first.shape or other.type is not first.type:
            raise PoplibsError(
                f"the operands of {op} must have one shape and type, got {first.type} "
                f"{list(first.shape)} and {other.type} {list(other.shape)}.",
                source=user_source(),
                hint="reshape or cast one of them",
            )


def check_rank(op: str, tensor: Tensor, least: int, layout: str) -> None:
    """Refuse a tensor of too few dimensions; `layout` names them."""
    if tensor.rank < least:
        raise PoplibsError(
            f"{op} needs a tensor {layout}, got shape {list(tensor.shape)}.",
            source=user_source(),
            hint=f"give it at least {least} dimensions",
        )


def check_labels(op: str, outputs: Tensor, labels: Tensor) -> None:
    """Refuse outputs that are not a matrix, and labels that are not one integer per row."""
    if outputs.rank != 2:
        raise PoplibsError(
            f"{op} needs outputs [batch, classes], got shape {list(outputs.shape)}.",
            source=user_source(),
            hint="reshape the outputs",
        )
    n_rows = outputs.shape[0]
    if labels.shape != (n_rows,) or labels.type not in (INT, UNSIGNED_INT):
        raise PoplibsError(
            f"{op} of {n_rows} rows needs {n_rows} labels of int or unsigned int, got "
            f"{labels.type} {list(labels.shape)}.",
            source=user_source(),
            hint="give one label per row",
        )
