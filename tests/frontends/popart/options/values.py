"""Values for session options that are not their defaults."""

import popart
from tremula.frontends.popart.options.table import SessionOption

_OFF_CHIP = popart.TensorLocation(popart.TensorStorage.OffChip, popart.TileSet.IO)


def other_value(row: SessionOption) -> object:
    """A value of the option's kind that differs from its default."""
    if row.choices is not None:
        return next(choice for choice in row.choices if choice != row.default)
    if row.kind == "object":
        return popart.TensorLocationSettings(_OFF_CHIP)
    return {
        "bool": lambda: not row.default,
        "uint64": lambda: int(row.default) + 3,
        "floating point": lambda: row.default + 1.0,
        "string": lambda: row.default + "half",
        "set / vector": lambda: [7] if row.default is None else type(row.default)([7]),
        "map": lambda: {"debug.allowOutOfMemory": "true", "enableConvDithering": "true"},
    }[row.kind]()
