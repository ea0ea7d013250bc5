"""Lowerings of loops, branches and calls, whose bodies are recorded steps."""

from typing import Any

import torch
from torch import fx

from tremula.base.types import BOOL, UNSIGNED_INT
from tremula.ir.bodies import body_of
from tremula.ir.lowering.tiles import FUNCTIONS, HOST_FUNCTIONS, Tiles
from tremula.ir.nodes import operand
from tremula.ir.op_table import lowering_of, lowers, refuse_unsupported
from tremula.ir.ops import explicit_tiles  # noqa: F401  registers tremula::on_tiles
from tremula.ir.passes import TILE_PASSES, apply
from tremula.poplar.programs import (
    Call,
    Copy,
    Function,
    If,
    Repeat,
    RepeatWhileTrue,
    Sequence,
)
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops, poputil
from tremula.poplibs.popops import expr

_PLACED = (torch.ops.tremula.on_tiles.default,)  # where rows are: no new value


def lowered_body(
    tiles: Tiles, key: str, inputs: list[Tensor], sequence: Sequence, n_carried: int = 0
) -> list[Tensor]:
    """The results of a body whose vertices run in `sequence`.

    The first inputs may be a loop's state, which the first results replace: an element-wise
    operation that computes one of them from its predecessor writes it in place.
    """
    step = apply(body_of(key).step, TILE_PASSES, "tiles")
    refuse_unsupported(step)
    values: dict[fx.Node, Any] = dict(zip(step.placeholders(), inputs, strict=True))
    tiles.shared.setdefault(HOST_FUNCTIONS, {})
    tiles.shared.setdefault(FUNCTIONS, {})
    shared = dict(tiles.shared)  # other programs cannot see what this sequence computes
    overwritten = _overwritten(step.placeholders()[:n_carried], step.results())
    for node in step.graph.nodes:
        here = Tiles(tiles.graph, sequence, node, tiles.options, shared, tiles.chip)
        if node in overwritten and not _is_read_later(node, overwritten[node], values):
            here.destination = values[overwritten[node]]
        if node.op == "get_attr":
            values[node] = here.constant_of(step.constants[node.target])
        elif node.op == "call_function":
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            lowering = lowering_of(node)
            assert lowering is not None, "rejected above"
            values[node] = lowering.build(here, *args, **kwargs)
    return [values[node] for node in step.results()]


def _overwritten(state: list[fx.Node], results: list[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Nodes that compute a state's next value from the state itself: what each may overwrite."""
    result = {}
    for old, new in zip(state, results, strict=False):
        while new.target in _PLACED and len(new.users) == 1:
            new = operand(new, 0)
        if results.count(new) <= 1 and old in new.all_input_nodes:
            result[new] = old
    return result


def _is_read_later(node: fx.Node, old: fx.Node, values: dict[fx.Node, Any]) -> bool:
    """Whether anything behind a node reads a state's old value, or something that is part of it."""
    variables = set(values[old].variable_ids())
    done = {*values, node}
    return any(
        isinstance(value, Tensor)
        and variables & set(value.variable_ids())
        and any(user not in done for user in other.users)
        for other, value in values.items()
    )


@lowers("tremula::for_loop", calls="Repeat")
def for_loop(
    tiles: Tiles, state: list[Tensor], captured: list[Tensor], count: int, body: str
) -> list[Tensor]:
    """State has separate variables; each round writes its results back to them."""
    if count < 1:
        return list(state)
    carried = [tiles.writeable_copy(tensor) for tensor in state]
    rounds = Sequence()
    results = lowered_body(tiles, body, [*carried, *captured], rounds, len(carried))
    _write_back(tiles, results, carried, rounds)
    tiles.sequence.add(Repeat(count, rounds))
    return carried


def _write_back(
    tiles: Tiles, results: list[Tensor], carried: list[Tensor], sequence: Sequence
) -> None:
    """A result that is a view of a state is saved before any state is written."""
    written = {variable for tensor in carried for variable in tensor.variable_ids()}
    pairs = []
    for result, target in zip(results, carried, strict=True):
        if result is target:  # written in place
            continue
        if written & set(result.variable_ids()):
            result = poputil.duplicate(tiles.graph, result, sequence, f"{tiles.name}/saved")
        pairs.append((result, target))
    for result, target in pairs:
        sequence.add(Copy(result, target))


@lowers("tremula::call", calls="Call")
def call(tiles: Tiles, inputs: list[Tensor], body: str) -> list[Tensor]:
    """Inputs are copied to the function's own variables, results from them: the code is shared."""
    functions = tiles.shared.setdefault(FUNCTIONS, {})
    key = (body, tiles.chip)
    if key not in functions:
        functions[key] = _function(tiles, inputs, body)
    function, arguments, results = functions[key]
    for source, target in zip(inputs, arguments, strict=True):
        tiles.copy(source, target)
    tiles.sequence.add(Call(function))
    return [tiles.writeable_copy(result) for result in results]


def _function(
    tiles: Tiles, inputs: list[Tensor], body: str
) -> tuple[Function, list[Tensor], list[Tensor]]:
    """A body as a function: its program, the variables it reads, and those of its results."""
    arguments = [
        tiles.new(tensor.shape, tensor.type)
        if poputil.repeats_elements(tensor) or tensor.contains_constant
        else poputil.clone_in_memory(tiles.graph, tensor, f"{tiles.name}/argument")
        for tensor in inputs
    ]
    program = Sequence()
    results = lowered_body(tiles, body, arguments, program)
    return tiles.graph.add_function(program, tiles.name), arguments, results


@lowers("tremula::while_loop", calls="RepeatWhileTrue")
def while_loop(
    tiles: Tiles,
    state: list[Tensor],
    condition_captured: list[Tensor],
    captured: list[Tensor],
    condition_body: str,
    body: str,
) -> list[Tensor]:
    """The condition is computed before every round, from the state's own variables."""
    carried = [tiles.writeable_copy(tensor) for tensor in state]
    check, rounds = Sequence(), Sequence()
    (goes_on,) = lowered_body(tiles, condition_body, [*carried, *condition_captured], check)
    predicate = tiles.new((), BOOL)
    check.add(Copy(goes_on.reshape([]), predicate))
    results = lowered_body(tiles, body, [*carried, *captured], rounds, len(carried))
    _write_back(tiles, results, carried, rounds)
    tiles.sequence.add(RepeatWhileTrue(check, predicate, rounds))
    return carried


@lowers("tremula::scan", calls="Repeat, popops.dynamic_slice, popops.dynamic_update")
def scan(
    tiles: Tiles,
    state: list[Tensor],
    rows: list[Tensor],
    captured: list[Tensor],
    count: int,
    is_reversed: bool,
    body: str,
) -> list[Tensor]:
    """A counter says which row goes in and comes out; results are written where they stay."""
    carried = [tiles.writeable_copy(tensor) for tensor in state]
    counter, rounds = tiles.new((1,), UNSIGNED_INT), Sequence()
    dims, sizes = (0,), (1,)
    taken = [
        popops.dynamic_slice(
            tiles.graph, row, counter, rounds, tiles.name, dims=dims, sizes=sizes
        ).squeeze([0])
        for row in rows
    ]
    operands = [*carried, *taken, *captured]
    body_results = lowered_body(tiles, body, operands, rounds, len(carried))
    made = []
    for result in body_results[len(carried) :]:
        target = popops.create_sliceable_tensor(
            tiles.graph, result.type, [count, *result.shape], dims, sizes, tiles.name
        )
        popops.dynamic_update(
            tiles.graph, target, result.expand([0]), counter, rounds, tiles.name,
            dims=dims, sizes=sizes,
        )  # fmt: skip
        made.append(target)
    _write_back(tiles, body_results[: len(carried)], carried, rounds)
    if rows or made:
        begin = count - 1 if is_reversed else 0
        popops.fill(tiles.graph, counter, begin, tiles.sequence, tiles.name)
        following = expr._1 - 1 if is_reversed else expr._1 + 1
        popops.map_in_place(tiles.graph, following, [counter], rounds, tiles.name)
    tiles.sequence.add(Repeat(count, rounds))
    return [*carried, *made]


@lowers("tremula::cond", calls="If")
def cond(
    tiles: Tiles,
    condition: Tensor,
    then_inputs: list[Tensor],
    else_inputs: list[Tensor],
    then_body: str,
    else_body: str,
) -> list[Tensor]:
    """Both branches write to the same variables."""
    predicate = tiles.cast(condition.reshape([]), BOOL)
    branches = (Sequence(), Sequence())
    taken = lowered_body(tiles, then_body, then_inputs, branches[0])
    other = lowered_body(tiles, else_body, else_inputs, branches[1])
    outputs = [tiles.new(tensor.shape, tensor.type) for tensor in taken]
    for results, branch in ((taken, branches[0]), (other, branches[1])):
        for result, target in zip(results, outputs, strict=True):
            branch.add(Copy(result, target))
    tiles.sequence.add(If(predicate, *branches))
    return outputs
