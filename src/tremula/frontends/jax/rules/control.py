"""Calls, branches and loops. Loops and branches are the program's own, not unrolled."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch
from jax.extend.core import ClosedJaxpr
from torch import Tensor

from tremula.frontends.jax.carriers import Value, of_parts, parts_of
from tremula.frontends.jax.evaluate import evaluate, evaluate_open, known_number
from tremula.frontends.jax.table import Equation, rule
from tremula.ir.capture.bodies import record_cond, record_scan, record_while
from tremula.ir.recording import active

# A loop of fewer equations in all is written out: what it computes can then be simplified.
MAX_UNROLLED = 24


# -- calls -----------------------------------------------------------------------------------------


@rule("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "run_state",
      "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "core_closed_call",
      "custom_lin", "eval_jaxpr")  # fmt: skip
def call(eqn: Equation, *operands: Value) -> list[Value]:
    """The function as it is: its derivatives, if it has its own, were taken by JAX before."""
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    function = next(eqn.params[name] for name in names if name in eqn.params)
    if isinstance(function, ClosedJaxpr):
        return evaluate(function, operands)
    return evaluate_open(function, [], operands)


@rule("call_hi_primitive")
def call_hi_primitive(eqn: Equation, *operands: Value) -> list[Value]:
    """What a primitive of others, such as a root with its own derivative, expands to."""
    primitive = eqn.params["_prim"]

    def expanded(*args: jax.Array) -> list[jax.Array]:
        result = primitive.expand(*jax.tree_util.tree_unflatten(primitive.in_tree, args))
        return jax.tree_util.tree_leaves(result)

    return evaluate(jax.make_jaxpr(expanded)(*eqn.in_avals), operands)


@rule("custom_linear_solve", "linear_solve")
def linear_solve(eqn: Equation, *operands: Value) -> list[Value]:
    """The solver that the program brings."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    constants = operands[before : before + lengths.solve]
    return evaluate(jaxprs.solve, [*constants, *operands[sum(lengths) :]])


# -- branches --------------------------------------------------------------------------------------


@rule("cond")
def cond(eqn: Equation, index: Tensor, *operands: Value) -> list[Value]:
    branches = eqn.params["branches"]
    number = known_number(index)
    if number is not None:
        return evaluate(branches[min(max(int(number), 0), len(branches) - 1)], operands)
    parts, avals = parts_of(list(operands)), list(eqn.in_avals[1:])
    functions = [_of_parts(branch, avals) for branch in branches]
    if index.dtype != torch.bool:
        index = torch.clamp(index, 0, len(branches) - 1)
    return of_parts(_branch(index, functions, parts), list(eqn.out_avals))


def _branch(index: Tensor, functions: Sequence[Callable], parts: list[Tensor]) -> list[Tensor]:
    """The last function if the index is its number, else one of those before it."""
    *others, last = functions
    if not others:
        return last(*parts)
    is_last = index if index.dtype == torch.bool else index == len(others)

    def other(*parts: Tensor) -> list[Tensor]:
        return _branch(index, others, list(parts))

    state = active()
    assert state is not None, "an index is unknown only while a function is recorded"
    return record_cond(state, is_last, last, parts, other, parts)


def _of_parts(function: ClosedJaxpr, avals: list[Any]) -> Callable[..., list[Tensor]]:
    def run(*parts: Tensor) -> list[Tensor]:
        return parts_of(evaluate(function, of_parts(list(parts), avals)))

    return run


# -- loops -----------------------------------------------------------------------------------------


@rule("while")
def while_loop(eqn: Equation, *operands: Value) -> list[Value]:
    n_cond, n_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    first, second = operands[:n_cond], operands[n_cond : n_cond + n_body]
    carried, avals = list(operands[n_cond + n_body :]), list(eqn.out_avals)

    def goes_on(*parts: Tensor) -> Tensor:
        result = evaluate(eqn.params["cond_jaxpr"], [*first, *of_parts(list(parts), avals)])
        (value,) = result
        assert isinstance(value, Tensor), "a condition is a boolean"
        return value

    def condition(*parts: Tensor) -> Tensor:
        return goes_on(*parts).any()

    def body(*parts: Tensor) -> list[Tensor]:
        values = [*second, *of_parts(list(parts), avals)]
        new = parts_of(evaluate(eqn.params["body_jaxpr"], values))
        if not eqn.params["cond_jaxpr"].out_avals[0].shape:
            return new
        mask = goes_on(*parts)  # `vmap` has made one loop of many: those that are done stay
        return [
            torch.where(mask.reshape([*mask.shape, *[1] * (after.dim() - mask.dim())]), after, old)
            for after, old in zip(new, parts, strict=True)
        ]

    state, parts = active(), parts_of(carried)
    if state is None:
        while bool(condition(*parts)):
            parts = body(*parts)
        return of_parts(parts, avals)
    return of_parts(record_while(state, condition, body, parts), avals)


@rule("scan")
def scan(eqn: Equation, *operands: Value) -> list[Value]:
    n_constants, n_carried = _counts(eqn)
    constants = list(operands[:n_constants])
    carried = list(operands[n_constants : n_constants + n_carried])
    rows = list(operands[n_constants + n_carried :])
    carried_avals = list(eqn.out_avals[:n_carried])
    body: ClosedJaxpr = eqn.params["jaxpr"]
    row_avals = [v.aval for v in body.jaxpr.invars[n_constants + n_carried :]]

    def step(*parts: Tensor) -> list[Tensor]:
        values = of_parts(list(parts), carried_avals + row_avals)
        return parts_of(evaluate(body, [*constants, *values]))

    length, is_reversed = eqn.params["length"], eqn.params["reverse"]
    state = active()
    n_parts = len(parts_of(carried))
    if state is None or length * len(body.jaxpr.eqns) <= MAX_UNROLLED:
        result = _unrolled(step, parts_of(carried), parts_of(rows), length, is_reversed)
    else:
        result = record_scan(
            state, step, parts_of(carried), parts_of(rows), length, is_reversed=is_reversed
        )
    last = of_parts(result[:n_parts], carried_avals)
    return last + of_parts(result[n_parts:], list(eqn.out_avals[n_carried:]))


def _counts(eqn: Equation) -> tuple[int, int]:
    """How many operands of a scan stay the same, and how many are carried along."""
    if "ft_in" in eqn.params:  # later versions of JAX say it by trees of the operands
        constants, carried, _ = eqn.params["ft_in"].unpack()
        return len(constants), len(carried)
    return eqn.params["num_consts"], eqn.params["num_carry"]


def _unrolled(
    step: Callable, carried: list[Tensor], rows: list[Tensor], length: int, is_reversed: bool
) -> list[Tensor]:
    n = len(carried)
    made: list[list[Tensor]] = []
    for i in reversed(range(length)) if is_reversed else range(length):
        result = step(*carried, *(row[i] for row in rows))
        carried, others = result[:n], result[n:]
        made.append(others)
    if is_reversed:
        made.reverse()
    return [*carried, *(torch.stack(parts) for parts in zip(*made, strict=True))]
