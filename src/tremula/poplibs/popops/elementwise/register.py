"""Registering element-wise operations: samples in each operation's domain, references, errors."""

from collections.abc import Callable, Iterator

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, Type
from tremula.poplibs.popops.elementwise import expr, functions
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.element_op import ElementOp
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS
from tremula.poplibs.registry import (
    ErrorCase,
    Op,
    PoplibsError,
    Sample,
    register,
    take_back,
    unregister,
)

Random = np.random.Generator
N_SAMPLE = 33  # odd, more than a vector, and quick


def values(
    op: ElementOp, type: Type, index: int, shape: tuple[int, ...], random: Random
) -> np.ndarray:
    """Random values of a type for operand `index` of an operation."""
    if type is BOOL or (op.has_condition and index == op.n_operands - 1):
        return random.random(shape) < 0.5
    if type.is_floating:
        result = random.uniform(*op.domain, shape)
        edges = np.roll(op.edges, index)[: result.size]
        result.reshape(-1)[: len(edges)] = edges
        return result.astype(type.dtype)
    limits = np.iinfo(type.dtype)
    low, high = op.integers(type, index) or (limits.min, int(limits.max) + 1)
    return random.integers(low, high - 1, shape, dtype=type.dtype, endpoint=True)


def _samples(op: ElementOp) -> Callable[[Type, Random], Iterator[Sample]]:
    def samples(type: Type, random: Random) -> Iterator[Sample]:
        for shape in ((N_SAMPLE,), (1,), (0, 3)):
            yield _sample(op, type, [shape] * op.n_operands, random)
        # All operations broadcast by the same code: one of them is enough.
        if op.name == "add" and type in (FLOAT, HALF, INT):
            for other in ((9,), (5, 1), (), (1, 9)):
                yield _sample(op, type, [(5, 9), other], random)
                yield _sample(op, type, [other, (5, 9)], random)
            yield _sample(op, type, [(2, 3, 4), (3, 1)], random)
            yield _sample(op, type, [(5, 1), (1, 9)], random)

    return samples


def _sample(op: ElementOp, type: Type, shapes: list[tuple[int, ...]], random: Random) -> Sample:
    return Sample(tuple(values(op, type, i, s, random) for i, s in enumerate(shapes)))


def _reference(op: ElementOp) -> Callable[..., np.ndarray]:
    """NumPy's result in the type that the operation gives; ours wraps and does not warn."""

    def reference(*operands: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = np.asarray(op.numpy(*operands))
        return result if op.gives_bool else result.astype(operands[0].dtype)

    return reference


def _errors(op: ElementOp) -> tuple[ErrorCase, ...]:
    wrong = next((t for t in (BOOL, FLOAT, INT) if t not in op.types), None)
    cases = []
    if wrong is not None:
        operands = (np.ones(3, wrong.dtype),) * op.n_operands
        cases.append(ErrorCase(Sample(operands), f"{op.name} does not work on {wrong}"))
    if op.n_operands == 2 and FLOAT in op.types:
        mixed = (np.ones(3, np.float32), np.ones(3, np.float16))
        cases.append(ErrorCase(Sample(mixed), "must have the same type, got float and half"))
        unequal = (np.ones((2, 3), np.float32), np.ones((2, 4), np.float32))
        cases.append(ErrorCase(Sample(unequal), "shapes [2, 3] and [2, 4] do not fit together"))
    return tuple(cases)


# -- registering -----------------------------------------------------------------------------------


_ADDED: set[str] = set()  # names of operations that users registered


def register_element_op(op: ElementOp) -> ElementOp:
    """Add an operation to popops: its functions, its name in expressions, its tests and docs.

    Its functions are then `popops.name`, `popops.name_in_place` and `popops.name_with_output`, and
    its name in expressions is `popops.expr.name`.
    """
    _check_new(op)
    ELEMENT_OPS[op.name] = op
    _ADDED.add(op.name)
    expr.add_builder(op)
    functions.add_functions(op)
    register(entry_of(op))
    return op


def remove_element_op(name: str) -> None:
    """Take back an operation that `register_element_op` added: for experiments and tests."""
    take_back(name, _ADDED, "element-wise operation")
    op = ELEMENT_OPS.pop(name)
    expr.remove_builder(op)
    functions.remove_functions(op)
    unregister(f"popops.{name}")


def _check_new(op: ElementOp) -> None:
    names = [op.name + suffix for suffix, _ in functions.SUFFIXES]
    taken = [n for n in names if hasattr(functions, n)] + [op.name] * hasattr(expr, op.name)
    if taken or not op.name.isidentifier():
        raise PoplibsError(
            f"an element-wise operation cannot be called {op.name!r}.",
            source=user_source(),
            hint=f"popops already has {taken[0]}" if taken else "use a name that Python can call",
        )
    known = {n: f for other in ELEMENT_OPS.values() for n, f in other.functions.items()}
    clashes = [n for n, f in op.functions.items() if known.get(n, f) is not f]
    if clashes or "<lambda>" in op.functions:
        raise PoplibsError(
            f"the tile functions of {op.name} need unique names, got "
            f"{', '.join(clashes or ['a lambda'])}.",
            source=user_source(),
            hint="generated codelets call them by name: define each with `def` and a new name",
        )


def entry_of(op: ElementOp) -> Op:
    """The operation's entry in the registry."""
    return Op(
        name=f"popops.{op.name}",
        function=getattr(functions, op.name),
        about=op.about,
        types=op.types,
        samples=_samples(op),
        reference=_reference(op),
        codelets=(element_codelet,),
        errors=_errors(op),
        tolerance=op.tolerance,
    )


for _op in ELEMENT_OPS.values():
    register(entry_of(_op))
