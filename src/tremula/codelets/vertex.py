"""How to write a codelet: a `Vertex` class; annotations are its fields, `compute` its code.

    class Adder(Vertex):
        x: Input[float32]
        y: Input[Vector[float32]]
        z: Output[float32]
        bias: float32

        def compute(self):
            ...

The forms of a field are `Input[T]`, `Input[Vector[T]]`, `Input[Vector[T, "ONE_PTR", 8]]` (layout,
least alignment in bytes, and True for interleaved memory), `Vector[Input[Vector[T]]]`,
`Input[VectorList[T]]`, `Vector[Input[T]]`, and for state plain `T` and `Vector[T]`; Output and
InOut go where Input does. A class attribute `name` overrides the codelet's name.

`compute` says what a tile runs, and what its code takes there. A method `compute_on_host(self)`
with the same results, which runs once for all workers, replaces it in kernels that a host runs.
"""

import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tremula.base.errors import GraphObjectCreationError, TypeMismatch, suggest
from tremula.base.source import Source, user_source
from tremula.base.types import QUARTER, Type, as_type
from tremula.codelets.spec import LAYOUTS, N_WORKERS, Direction, FieldKind, FieldSpec, VertexBase


class Vertex:
    """Runs `compute(self)` on one worker thread of a tile."""

    _tremula_source: Source
    _tremula_scope: Mapping[str, object] = {}

    def __init_subclass__(cls) -> None:
        """Remember where the class was written, and what its annotations' text can refer to."""
        cls._tremula_source = user_source()
        annotations = inspect.get_annotations(cls)
        if any(isinstance(a, str) for a in annotations.values()):
            frame = sys._getframe(1)
            is_module = frame.f_locals is frame.f_globals
            local = {} if is_module else dict(frame.f_locals)
            cls._tremula_scope = ChainMap(local, frame.f_globals)


class MultiVertex(Vertex):
    """Runs `compute(self, worker_id)` on every worker of a tile; they share the fields.

    On a tile `self.n_workers` is the chip's number of workers, a constant of the compiled kernel.
    """

    n_workers = N_WORKERS


class SupervisorVertex(Vertex):
    """Runs `compute(self)` once, on the supervisor thread of a tile."""


@dataclass(frozen=True, slots=True)
class VectorForm:
    """What `Vector[…]` or `VectorList[…]` means before a field has a name."""

    element: object
    layout: str = "SPAN"
    min_align: int = 1
    is_interleaved: bool = False
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class EdgeForm:
    """What `Input[…]`, `Output[…]` or `InOut[…]` means before a field has a name."""

    direction: Direction
    element: object


class _EdgeMaker:
    direction: Direction

    def __class_getitem__(cls, element: object) -> EdgeForm:
        return EdgeForm(cls.direction, element)


class Input(_EdgeMaker):
    """A field that is read: `Input[T]` or `Input[Vector[T]]`."""

    direction = Direction.INPUT


class Output(_EdgeMaker):
    """A field that is written whole: `Output[T]` or `Output[Vector[T]]`."""

    direction = Direction.OUTPUT


class InOut(_EdgeMaker):
    """A field that is read and written: `InOut[T]` or `InOut[Vector[T]]`."""

    direction = Direction.INOUT


class Vector:
    """Elements side by side: `Vector[T]`, `Vector[T, layout, min_align, is_interleaved]`."""

    def __class_getitem__(cls, arguments: object) -> VectorForm:
        return _vector_form(arguments, is_list=False)


class VectorList:
    """Several vectors: `Input[VectorList[T]]`, `Input[VectorList[T, "DELTAN", 4]]`."""

    def __class_getitem__(cls, arguments: object) -> VectorForm:
        return _vector_form(arguments, is_list=True)


def _vector_form(arguments: object, is_list: bool) -> VectorForm:
    """`T`, or `T, layout, min_align, is_interleaved`; `_field` rejects bad values."""
    values = arguments if isinstance(arguments, tuple) else (arguments,)
    element, layout, min_align, is_interleaved = (*values, *("SPAN", 1, False)[len(values) - 1 :])
    return VectorForm(element, layout, min_align, is_interleaved, is_list)  # pyright: ignore[reportArgumentType]


def base_of(cls: type) -> VertexBase:
    """Which of the three kinds of vertex a class is."""
    if issubclass(cls, MultiVertex):
        return VertexBase.MULTI_VERTEX
    return VertexBase.SUPERVISOR_VERTEX if issubclass(cls, SupervisorVertex) else VertexBase.VERTEX


def fields_of(cls: type, source: Source) -> tuple[FieldSpec, ...]:
    """The fields of a vertex class in order, those of its bases first."""
    fields: dict[str, FieldSpec] = {}
    for base in reversed(cls.__mro__):
        if base is Vertex or not issubclass(base, Vertex):
            continue
        for name, annotation in inspect.get_annotations(base).items():
            meaning = _evaluated(annotation, base, name, source)
            fields[name] = _field(name, meaning, cls, source)
    return tuple(fields.values())


def _evaluated(annotation: object, base: type[Vertex], name: str, source: Source) -> object:
    """The annotation, or the value of its text under `from __future__ import annotations`."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(base._tremula_scope))
    except Exception as error:  # noqa: BLE001 - anything may go wrong in an annotation
        raise GraphObjectCreationError(
            f"field {name!r} of codelet {base.__name__}: its annotation {annotation!r} cannot be "
            f"evaluated ({error}).",
            source=source,
            hint="import the names it uses at module level, or in the function around the class",
        ) from None


def _field(name: str, form: object, cls: type, source: Source) -> FieldSpec:
    def fail(reason: str, hint: str) -> GraphObjectCreationError:
        what = f"field {name!r} of codelet {cls.__name__}: {reason}"
        return GraphObjectCreationError(what, source=source, hint=hint)

    if name.startswith("_") or name in ("n_workers", "name", "provenance"):
        raise fail(f"{name!r} is not a usable field name.", "use a plain name")
    direction, inner, is_vector_of_edges = None, form, False
    vector: VectorForm | None = None
    if isinstance(form, VectorForm) and isinstance(form.element, EdgeForm):
        is_vector_of_edges, direction, inner = True, form.element.direction, form.element.element
    elif isinstance(form, EdgeForm):
        direction, inner = form.direction, form.element
    if isinstance(inner, VectorForm):
        vector, inner = inner, inner.element
    kind = _kind(direction is not None, vector, is_vector_of_edges)
    element = _element_type(inner, fail)
    if element is QUARTER and direction is None:
        raise fail("state cannot be quarter: it has no metadata.", "use half or float32")
    shape = vector or VectorForm(None)
    _check_vector(shape, fail)
    return FieldSpec(
        name=name, kind=kind, type=element, direction=direction, layout=shape.layout,
        min_align=shape.min_align, is_interleaved=shape.is_interleaved,
    )  # fmt: skip


def _kind(is_edge: bool, vector: VectorForm | None, is_vector_of_edges: bool) -> FieldKind:
    if not is_edge:
        return FieldKind.STATE if vector is None else FieldKind.STATE_VECTOR
    if is_vector_of_edges:
        return FieldKind.SCALAR_LIST if vector is None else FieldKind.VECTOR_LIST
    if vector is None:
        return FieldKind.SCALAR
    return FieldKind.VECTOR_LIST if vector.is_list else FieldKind.VECTOR


Failure = Callable[[str, str], GraphObjectCreationError]


def _element_type(inner: object, fail: Failure) -> Type:
    forms = (
        "Input[T], Output[Vector[T]], Vector[Input[Vector[T]]], Input[VectorList[T]], T, Vector[T]"
    )
    if isinstance(inner, EdgeForm | VectorForm):
        raise fail("its annotation nests too deeply.", f"use one of {forms}")
    if inner is float or inner is int:
        wanted = "float32" if inner is float else "int32"
        raise fail(f"{inner.__name__!r} has no fixed size.", f"use {wanted}")
    try:
        return as_type(inner)
    except TypeMismatch as error:
        raise fail(f"unsupported field type: {error.what}", error.hint or f"use {forms}") from None


def _check_vector(vector: VectorForm, fail: Failure) -> None:
    if vector.layout not in LAYOUTS:
        raise fail(f"unknown layout {vector.layout!r}.", suggest(str(vector.layout), LAYOUTS))
    align = vector.min_align
    if not isinstance(align, int) or align < 1 or align & (align - 1):
        raise fail(f"alignment must be a power of two, got {align!r}.", "use 1, 2, 4, 8, 16 or 32")
