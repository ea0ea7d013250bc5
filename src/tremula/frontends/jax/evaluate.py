"""Evaluates a jaxpr on PyTorch tensors: real ones, or those of a recording."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from torch import Tensor

from tremula.base.errors import PoplarError, suggest
from tremula.base.library_versions import LIBRARIES
from tremula.base.source import Source, is_framework_code, source_at
from tremula.frontends.jax.carriers import Value, carrier, from_array, is_wrapped
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.table import Entry, Equation, entries
from tremula.ir.recording import active

KNOWN_VERSIONS = LIBRARIES["jax"].requirement
JAX_FOLDER = str(Path(jax.__file__).parent)


def evaluate(closed: ClosedJaxpr, operands: Sequence[Value]) -> list[Value]:
    """The results of a jaxpr with its constants."""
    constants = [
        from_array(value, variable.aval)
        for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True)
    ]
    return evaluate_open(closed.jaxpr, constants, operands)


def evaluate_open(
    jaxpr: Jaxpr, constants: Sequence[Value], operands: Sequence[Value]
) -> list[Value]:
    """Evaluate a jaxpr whose constants are passed as values."""
    values: dict[Any, Value] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: object) -> Value:
        return constant(atom) if is_literal(atom) else values[atom]

    def operands_of(line: JaxprEqn) -> list[Any]:
        if not _takes_numbers(line):
            return [read(atom) for atom in line.invars]
        return [number(a) if is_literal(a) else values[a] for a in line.invars]

    last_use = _last_uses(jaxpr)
    for index, line in enumerate(jaxpr.eqns):
        results = _apply(line, operands_of(line))
        values.update(zip(line.outvars, results, strict=True))
        for variable in last_use.get(index, ()):
            values.pop(variable, None)
    return [read(atom) for atom in jaxpr.outvars]


def constant(atom: Any) -> Value:  # noqa: ANN401
    return from_array(np.asarray(atom.val, atom.aval.dtype), atom.aval)


def number(atom: Any) -> Any:  # noqa: ANN401
    """A scalar as a number of Python's, as its carrier holds it: no tensor is recorded for it."""
    value = np.asarray(atom.val, atom.aval.dtype)
    return (value.view(np.dtype(f"i{value.itemsize}")) if is_wrapped(value.dtype) else value).item()


def _takes_numbers(line: JaxprEqn) -> bool:
    """Whether the rule takes numbers, all literals are scalars, and something else is a tensor."""
    entry = entries().get(line.primitive.name)
    literals: list[Any] = [atom for atom in line.invars if is_literal(atom)]
    if entry is None or not entry.takes_numbers or len(literals) == len(line.invars):
        return False
    return bool(literals) and not any(atom.aval.shape for atom in literals)


def is_literal(atom: object) -> bool:
    return isinstance(atom, Literal)


def _last_uses(jaxpr: Jaxpr) -> dict[int, list[Any]]:
    """Variables that no line behind a place reads, so that their memory can go."""
    saved = {atom for atom in jaxpr.outvars if not is_literal(atom)}
    last: dict[Any, int] = {}
    for place, line in enumerate(jaxpr.eqns):
        last.update({atom: place for atom in line.invars if not is_literal(atom)})
    result: dict[int, list[Any]] = {}
    for variable, place in last.items():
        if variable not in saved:
            result.setdefault(place, []).append(variable)
    return result


def _apply(line: JaxprEqn, operands: list[Any]) -> list[Value]:
    equation = Equation(
        line.primitive.name,
        line.params,
        tuple(atom.aval for atom in line.invars),
        tuple(variable.aval for variable in line.outvars),
        user_line(line),
    )
    entry = _entry_of(equation)
    with at_line(equation.source):
        try:
            result = entry.build(equation, *operands)
        except (PoplarError, NotImplementedError, RuntimeError, ValueError, KeyError) as error:
            raise _located(equation, error) from error
    results = result if isinstance(result, list) else [result]
    for value, aval in zip(results, equation.out_avals, strict=True):
        _check(equation, value, aval)
    return results


def _check(equation: Equation, value: Value, aval: Any) -> None:  # noqa: ANN401
    """Results have the types that JAX infers; functions of scalars may get arrays."""
    if isinstance(value, Tensor):
        is_right = value.dtype == carrier(aval.dtype) and aval.shape in ((), tuple(value.shape))
        assert is_right, f"{equation.name} gave {tuple(value.shape)} {value.dtype} for {aval}"


def _located(equation: Equation, error: Exception) -> Exception:
    if isinstance(error, PoplarError):
        if error.source is not None:
            return error
        return type(error)(error.what, source=equation.source, hint=error.hint)
    if isinstance(error, KeyError) and error.args and error.args[0] not in equation.params:
        return _other_version(equation, str(error.args[0]))
    return JaxError(f"{equation.name} failed: {error}", source=equation.source)


def _other_version(equation: Equation, name: str) -> JaxError:
    """A rule looked for a parameter that the primitive had when it was written."""
    values = ", ".join(sorted(map(str, equation.params)))
    return JaxError(
        f"JAX {jax.__version__} gives the primitive {equation.name!r} no parameter {name!r}, but"
        f" {values or 'none'}: its form is not known.",
        source=equation.source,
        hint=f"use a version that is known: pip install '{KNOWN_VERSIONS}'",
    )


def _entry_of(equation: Equation) -> Entry:
    known = entries()
    if equation.name not in known:
        raise JaxError(
            f"the primitive {equation.name!r} has no translation.",
            source=equation.source,
            hint=suggest(equation.name, known),
        )
    return known[equation.name]


def user_line(line: JaxprEqn) -> Source | None:
    """The innermost line of the user's program that made an equation."""
    traceback = line.source_info.traceback
    if traceback is None:
        return None
    for frame in traceback.frames:
        if not is_framework_code(frame.file_name) and not frame.file_name.startswith(JAX_FOLDER):
            return source_at(frame.file_name, frame.line_num)
    return None


@contextmanager
def at_line(source: Source | None) -> Iterator[None]:
    """Operations recorded inside have this line as their origin."""
    state = active()
    if state is None or source is None:
        yield
        return
    before, state.source = state.source, source
    try:
        yield
    finally:
        state.source = before


def by_definition(
    function: Callable[..., Any], avals: Sequence[Any], operands: Sequence[Value]
) -> list[Value]:
    """The results of a function of JAX's, translated as everything else is."""
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    return evaluate(jax.make_jaxpr(function)(*shapes), operands)


def known_number(value: Tensor | float) -> Any:  # noqa: ANN401
    """The number a tensor holds, or None where it is known only as the program runs."""
    if not isinstance(value, Tensor):
        return value
    if isinstance(value, torch._subclasses.FakeTensor) or value.numel() != 1:
        return None
    return value.item()
