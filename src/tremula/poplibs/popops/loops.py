"""Counted loops: a body that gets its counter as a tensor; with fixed or computed bounds."""

from collections.abc import Callable

from tremula.base.source import user_source
from tremula.base.types import INT, UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Program, Repeat, RepeatWhileTrue, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.expr import _1, _2
from tremula.poplibs.popops.elementwise.fill import fill
from tremula.poplibs.popops.elementwise.map import map_in_place, map_with_output
from tremula.poplibs.registry import PoplibsError

Body = Callable[[Tensor], Program]


def counted_loop(
    graph: Graph,
    begin: int,
    end: int,
    step: int,
    body: Body,
    name: str = "",
    *,
    tile: int = 0,
) -> Sequence:
    """Run `body(counter)` for counter = begin, begin + step, … below end; the loop as a program.

    The counter is an UNSIGNED_INT scalar.
    """
    if not 0 <= begin < end or step < 1:
        raise PoplibsError(
            f"a counted loop from {begin} to {end} in steps of {step} never runs or never ends.",
            source=user_source(),
            hint="use 0 <= begin < end and a step of 1 or more",
        )
    counter = graph.add_variable(UNSIGNED_INT, [], name or "loopCounter", mapping=tile)
    sequence = Sequence()
    fill(graph, counter, begin, sequence, "loopBegin")
    steps = Sequence([body(counter)])
    map_in_place(graph, _1 + step, [counter], steps, "loopStep")
    sequence.add(Repeat(-(-(end - begin) // step), steps))
    return sequence


def counted_for_loop(
    graph: Graph,
    begin: int,
    limit: Tensor,
    step: int,
    body: Body,
    name: str = "",
    *,
    counter: Tensor | None = None,
) -> Sequence:
    """Run `body(counter)` while counter < limit, a scalar tensor read before every round.

    The counter (given or new) is of the limit's type, INT or UNSIGNED_INT, and starts at begin. A
    negative step counts down, while counter > limit.
    """
    if limit.n_elems != 1 or limit.type not in (INT, UNSIGNED_INT) or step == 0:
        raise PoplibsError(
            f"a counted for loop needs one int or unsigned int as its limit and a step that is not "
            f"0, got {limit.type} of shape {list(limit.shape)} and a step of {step}.",
            source=user_source(),
            hint="index one element of the limit",
        )
    tile = int(graph.get_tile_mapping(limit).tile[0])
    if counter is None:
        counter = graph.add_variable(limit.type, [], name or "loopCounter", mapping=tile)
    goes_on = graph.add_variable("bool", [], "loopGoesOn", mapping=tile)
    sequence, condition = Sequence(), Sequence()
    fill(graph, counter, begin, sequence, "loopBegin")
    test = _1 < _2 if step > 0 else _1 > _2
    operands = [counter.reshape([]), limit.reshape([])]
    map_with_output(graph, test, operands, goes_on, condition, "loopTest")
    steps = Sequence([body(counter)])
    add_loop_counter_step(graph, counter, step, steps)
    sequence.add(RepeatWhileTrue(condition, goes_on, steps))
    return sequence


def add_loop_counter_step(
    graph: Graph, counter: Tensor, step: int, sequence: Sequence, name: str = ""
) -> None:
    """Append counter += step to a sequence."""
    change = _1 + step if step > 0 else _1 - (-step)
    map_in_place(graph, change, [counter], sequence, name or "loopStep")
