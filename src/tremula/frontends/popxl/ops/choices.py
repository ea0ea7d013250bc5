"""How an operation is planned, from its arguments: memory, type of partial sums, dithering.

Arguments of convolutions are lists with a value for each convolution of an operation, as PopART's
multi-convolutions take them; PopXL's operations have one convolution.
"""

from typing import Any

from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.dtypes import dtype
from tremula.ir.origin import Choices

MEMORY, MEMORIES = "available_memory_proportion", "available_memory_proportions"
PARTIALS, PARTIALS_OF_EACH = "partials_type", "partials_types"
DITHERING = "enable_conv_dithering"
_PARTIALS = {"half": "half", "float": "float", "float16": "half", "float32": "float"}


def choices_of(op: Op) -> Choices:
    """What the arguments of an operation, or of the one it is the gradient of, say of its plan."""
    forward = getattr(op.attributes.get("forward"), "op", op)  # of an operation's gradient
    attributes = forward.attributes
    share, partials, dithers = (
        next((v for name in names if (v := _one(name, attributes.get(name))) is not None), None)
        for names in ((MEMORY, MEMORIES), (PARTIALS, PARTIALS_OF_EACH), (DITHERING,))
    )
    return Choices(
        None if share is None else float(share),
        None if partials is None else _PARTIALS[_name(partials)],
        None if dithers is None else bool(dithers),
    )


def check_choices(memory: object = None, partials: object = None, dithering: object = None) -> None:
    """Refuse arguments of a product that no plan can follow."""
    share, type_ = _one(MEMORIES, memory), _one(PARTIALS_OF_EACH, partials)
    _one(DITHERING, dithering)
    if share is not None and not 0 <= share <= 1:
        raise ValueError(f"{MEMORY} must be between 0 and 1, got {share}")
    if type_ is not None and _name(type_) not in _PARTIALS:
        raise ValueError(f"{PARTIALS_OF_EACH} must be 'half' or 'float', got {type_!r}")


def _one(name: str, value: Any) -> Any:
    """The value for the only convolution; None: as the session says."""
    if not isinstance(value, list | tuple):
        return value
    if len(value) > 1:
        raise ValueError(f"{name} must have one value, got {len(value)}: {value!r}")
    return value[0] if value else None


def _name(type_: object) -> str:
    return type_.name if isinstance(type_, dtype) else str(type_).lower()
