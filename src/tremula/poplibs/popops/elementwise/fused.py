"""An expression becomes codelet source: types inferred, common parts shared, loops around it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, Type
from tremula.poplibs.popops.elementwise.element_op import ElementOp
from tremula.poplibs.popops.elementwise.nodes import CastTo, Const, Expr, OperationExpr, PlaceHolder
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS
from tremula.poplibs.registry import PoplibsError

# Elements of one worker of a MultiVertex, as arguments of `range`.
SHARE_OF_WORKER = "n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers"


@dataclass(frozen=True, slots=True)
class FusedBody:
    """What one element needs: lines of source that compute `result_name` from x1, x2, …"""

    text: str  # the expression
    types: tuple[Type, ...]  # of the placeholders 1 … n
    used: tuple[int, ...]  # placeholders that appear, ascending
    lines: tuple[str, ...]
    result_name: str
    result: Type
    ops: tuple[tuple[str, Type], ...]  # with the type they compute in
    has_constant: bool
    functions: tuple[Callable, ...]  # that the lines may call

    @property
    def single_op(self) -> tuple[str, Type] | None:
        """The operation, if there is only one and its operands are tensors or numbers."""
        is_single = len(self.ops) == 1 and len(self.lines) == 1
        return self.ops[0] if is_single else None

    @property
    def n_flops(self) -> int:
        """Of one element."""
        return sum(ELEMENT_OPS[op].flops_of(element) for op, element in self.ops)


def fuse(expr: Expr, types: Sequence[Type]) -> FusedBody:
    """Check an expression against the types of its tensors, and write its source."""
    key = (expr.text(), *(type.name for type in types))
    known = _FUSED.get(key)
    if known is None:
        writer = _Writer(tuple(types))
        name, result = writer.value(expr, None)
        known = FusedBody(
            expr.text(), tuple(types), tuple(sorted(writer.used)), tuple(writer.lines), name,
            result, tuple(writer.ops), writer.has_constant, tuple(writer.functions),
        )  # fmt: skip
        if len(_FUSED) < _N_FUSED:
            _FUSED[key] = known
    return known


_FUSED: dict[tuple[str, ...], FusedBody] = {}  # by the text of an expression and types
_N_FUSED = 10_000


def type_error(what: str, hint: str) -> PoplibsError:
    return PoplibsError(what, source=user_source(), hint=hint)


@dataclass
class _Writer:
    types: tuple[Type, ...]
    used: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    ops: list[tuple[str, Type]] = field(default_factory=list)
    functions: dict[Callable, None] = field(default_factory=dict)
    known: dict[tuple[str, Type | None], tuple[str, Type]] = field(default_factory=dict)
    has_constant: bool = False

    def value(self, expr: Expr, wanted: Type | None) -> tuple[str, Type]:
        """The name (or number) and type of an expression; untyped numbers become `wanted`."""
        if isinstance(expr, PlaceHolder):
            return f"x{expr.index}", self._placeholder_type(expr)
        if isinstance(expr, Const):
            self.has_constant = True
            return constant_text(expr, wanted)
        key = (expr.text(), wanted)
        if key not in self.known:
            is_cast = isinstance(expr, CastTo)
            self.known[key] = self._cast(expr) if is_cast else self._operation(expr, wanted)  # pyright: ignore[reportArgumentType]
        return self.known[key]

    def _placeholder_type(self, expr: PlaceHolder) -> Type:
        if expr.index > len(self.types):
            raise type_error(
                f"the expression uses {expr.text()}, but got {len(self.types)} tensors.",
                "give a tensor for every placeholder; _1 is the first",
            )
        self.used.add(expr.index)
        return self.types[expr.index - 1]

    def _cast(self, expr: CastTo) -> tuple[str, Type]:
        operand, _ = self.value(expr.operand, None)
        return self._line(f"{converter(expr.type)}({operand})"), expr.type

    def _operation(self, expr: OperationExpr, wanted: Type | None) -> tuple[str, Type]:
        op = ELEMENT_OPS[expr.op]
        element = self._common_type(op, expr.operands[: op.n_alike], wanted)
        operands = [self.value(o, element)[0] for o in expr.operands[: op.n_alike]]
        for condition in expr.operands[op.n_alike :]:
            name, condition_type = self.value(condition, BOOL)
            if condition_type is not BOOL:
                raise type_error(
                    f"the condition of {op.name} must be bool, got {condition_type}.",
                    "compare it first: _3 != 0",
                )
            operands.append(name)
        self.ops.append((op.name, element))
        self.functions |= dict.fromkeys(op.functions.values())
        return self._line(source_of(op, element, operands)), BOOL if op.gives_bool else element

    def _common_type(self, op: ElementOp, operands: tuple[Expr, ...], wanted: Type | None) -> Type:
        result = [t for t in (self._known_type(o) for o in operands) if t is not None]
        if len(set(result)) > 1:
            raise type_error(
                f"operands of {op.name} must have the same type, got "
                + " and ".join(str(t) for t in dict.fromkeys(result)) + ".",
                "cast one of them: popops.cast(graph, tensor, type, sequence), or Cast(_1, type)",
            )  # fmt: skip
        default = None if op.gives_bool else wanted
        element = result[0] if result else default or _default_type(operands)
        if element not in op.types:
            raise type_error(
                f"{op.name} does not work on {element}.",
                "it works on " + ", ".join(str(t) for t in op.types),
            )
        return element

    def _known_type(self, expr: Expr) -> Type | None:
        """The type of an expression; None if it is made of untyped numbers only."""
        if isinstance(expr, PlaceHolder):
            return self._placeholder_type(expr)
        if isinstance(expr, Const | CastTo):
            return expr.type
        assert isinstance(expr, OperationExpr), expr
        op = ELEMENT_OPS[expr.op]
        if op.gives_bool:
            return BOOL
        result = (self._known_type(o) for o in expr.operands[: op.n_alike])
        return next((t for t in result if t is not None), None)

    def _line(self, source: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {source}")
        return name


def _default_type(operands: tuple[Expr, ...]) -> Type:
    numbers = [o.value for o in operands if isinstance(o, Const)]
    if numbers and all(isinstance(n, bool) for n in numbers):
        return BOOL
    return INT if numbers and all(isinstance(n, int) for n in numbers) else FLOAT


def converter(element: Type) -> str:
    """The name by which generated source converts to a type."""
    return f"as_{element.name.lower()}"


def constant_text(const: Const, wanted: Type | None) -> tuple[str, Type]:
    """A number of a type as source; an error if the type cannot hold it."""
    element = const.type or wanted or _default_type((const,))
    value = const.value
    if element.is_floating:
        with np.errstate(over="ignore"):
            rounded = float(np.asarray(value).astype(element.dtype))
        if np.isfinite(value) and not np.isfinite(rounded):
            raise type_error(f"{value!r} is too large for {element}.", "use a smaller number")
        return f"{converter(element)}({rounded!r})", element
    whole = int(value) if np.isfinite(value) else None
    fits = whole == value and (
        element is BOOL
        or np.iinfo(element.dtype).min <= int(value) <= np.iinfo(element.dtype).max
    )  # fmt: skip
    if not fits or whole is None:
        raise type_error(
            f"{value!r} is not a valid {element}.", f"use a whole number that fits {element}"
        )
    if element is BOOL:
        return repr(bool(value)), element
    return f"{converter(element)}({whole})", element


def source_of(op: ElementOp, element: Type, operands: Sequence[str]) -> str:
    """Source of one operation; results of integers wrap as their type does."""
    text = op.source_for(element)
    if element is HALF and op.in_float:
        operands = [f"{converter(FLOAT)}({o})" for o in operands]
    zero = f"{converter(element)}(0)"
    filled = text.format(*operands, zero=zero, n_bits=8 * element.n_bytes)
    is_done = op.gives_bool or element is BOOL
    return filled if is_done else f"{converter(element)}({filled})"
