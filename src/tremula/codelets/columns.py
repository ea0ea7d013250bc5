"""The columns of a codelet's vertex table in kernel order, as docs/architecture.md lists them."""

from dataclasses import dataclass

import numpy as np

from tremula.codelets.spec import FieldKind, FieldSpec

ROLES = {
    FieldKind.SCALAR: ("offset",),
    FieldKind.VECTOR: ("offset", "length"),
    FieldKind.VECTOR_LIST: ("start", "offset", "length"),
    FieldKind.SCALAR_LIST: ("start", "offset"),
    FieldKind.STATE: ("value",),
    FieldKind.STATE_VECTOR: ("start", "value"),
}


@dataclass(frozen=True, slots=True)
class KernelColumn:
    """Column `index` of a kernel: what it says (`role`) about which field."""

    index: int
    field: FieldSpec
    role: str

    @property
    def dtype(self) -> np.dtype:
        return self.field.type.dtype if self.role == "value" else np.dtype(np.int64)


def columns_of(fields: tuple[FieldSpec, ...]) -> tuple[KernelColumn, ...]:
    """All columns of these fields, in the order a kernel takes them."""
    named = [(f, role) for f in fields for role in roles_of(f)]
    return tuple(KernelColumn(i, f, role) for i, (f, role) in enumerate(named))


def roles_of(field: FieldSpec) -> tuple[str, ...]:
    has_metadata = field.is_edge and field.type.requires_metadata
    return ROLES[field.kind] + (("metadata",) if has_metadata else ())
