"""Calls of a function do not share what is live across each: against every path of programs."""

import numpy as np
from hypothesis import given, settings

from tests.compiler.passes.test_liveness import N_VARIABLES, brute_force_by_state, program_of, trees
from tremula.base.types import INT
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.calls import without_rows
from tremula.compiler.passes.liveness import analyse_liveness
from tremula.compiler.program_ir import Opcode
from tremula.poplar import programs as p


def two_calls(graph):
    """A function called twice; a variable of 400 bytes is live across one call, 40 the other."""
    sizes = {"in": 1, "large": 100, "small": 10, "mine": 5, "out": 1}
    v = {name: graph.add_variable(INT, [n], name, mapping=0) for name, n in sizes.items()}
    graph.create_host_write("in", v["in"])
    graph.create_host_read("out", v["out"])
    f = graph.add_function(
        p.Sequence([p.Copy(v["in"].broadcast(5, 0), v["mine"]), p.Copy(v["mine"][0:1], v["out"])]),
        "f",
    )

    def across(name):
        many = v["in"].broadcast(sizes[name], 0)
        return [p.Copy(many, v[name]), p.Call(f), p.Copy(v[name][0:1], v["out"])]

    return p.Sequence([*across("large"), *across("small")]), v


def test_calls_are_not_live_together(small_graph, analysed):
    """The fullest moment has what is live across one of the calls, not across both."""
    graph = small_graph()
    program, _ = two_calls(graph)
    memory = analysed(graph, program).memory
    assert memory.category("Variables")[0] == 4 * (1 + 100 + 5 + 1)


def test_what_a_function_writes_has_memory_in_every_call(small_graph, analysed):
    """A result that is read behind one of two calls is written in both, beside what is live."""
    graph = small_graph()
    sizes = {"in": 1, "large": 100, "result": 10, "out": 1}
    v = {name: graph.add_variable(INT, [n], name, mapping=0) for name, n in sizes.items()}
    graph.create_host_write("in", v["in"])
    graph.create_host_read("out", v["out"])
    many = {name: v["in"].broadcast(sizes[name], 0) for name in ("large", "result")}
    f = graph.add_function(p.Sequence([p.Copy(many["result"], v["result"])]), "f")
    large = [p.Copy(many["large"], v["large"]), p.Call(f), p.Copy(v["large"][0:1], v["out"])]
    program = p.Sequence([*large, p.Call(f), p.Copy(v["result"][0:1], v["out"])])
    assert analysed(graph, program).memory.category("Variables")[0] == 4 * (1 + 100 + 10 + 1)


def test_the_fullest_call_is_what_is_listed(small_graph):
    """What is live in a function is what its fullest call has, and all calls have their ranges."""
    graph = small_graph()
    program, v = two_calls(graph)
    low = lower(graph, program)
    live = analyse_liveness(low)
    body = int(low.code[low.code[:, 0] == Opcode.CALL, 1][0])
    large, small = (int(v[name].variable_ids()[0]) for name in ("large", "small"))
    assert {large, small} <= set(live.live_at(body).tolist())
    fullest = live.in_fullest_calls()
    assert large in fullest.live_at(body)
    assert small not in fullest.live_at(body)
    calls = np.flatnonzero(low.code[:, 0] == Opcode.CALL)
    assert small in fullest.live_at(int(calls[1]))


def test_a_call_within_a_function(small_graph):
    """What only the outer function's caller has live across is absent from no call of the inner."""
    graph = small_graph()
    v = [graph.add_variable(INT, [4], f"v{i}", mapping=0) for i in range(4)]
    graph.create_host_write("in", v[0])
    graph.create_host_read("out", v[3])
    inner = graph.add_function(p.Sequence([p.Copy(v[0], v[1]), p.Copy(v[1], v[3])]), "inner")
    outer = graph.add_function(p.Sequence([p.Call(inner)]), "outer")
    steps = [p.Copy(v[0], v[2]), p.Call(outer), p.Copy(v[2], v[3]), p.Call(outer)]
    assert analyse_liveness(lower(graph, p.Sequence(steps))).calls is None


@settings(max_examples=40)
@given(trees, trees, trees)
def test_every_state_has_room(small_graph, tree, inner, outer):
    """What is left of the ranges in a function is at least what any state of the program needs."""
    graph = small_graph()
    variables = [graph.add_variable(INT, [4], f"v{i}", mapping=0) for i in range(N_VARIABLES)]
    f = graph.add_function(program_of(inner, variables, []), "f")
    g = graph.add_function(program_of(outer, variables, [f]), "g")
    fresh = [p.WriteUndef(v) for v in variables]
    low = lower(graph, p.Sequence([*fresh, program_of(tree, variables, [f, g]), p.Call(f)]))
    result = analyse_liveness(low)
    row = result.rows_of_calls(len(low.code))
    absent = result.absent_bytes(graph.target.n_tiles)[:, 0]
    always, needed = brute_force_by_state(low)
    for (instruction, _), here in needed.items():
        room = 16 * len(result.live_at(instruction)) - absent[row[instruction]]
        assert room >= 16 * len(here - always)


def test_rows_are_cut_from_ranges():
    """A range around the rows becomes two, one at their edge loses them, others stay."""
    ranges = tuple(np.array(c) for c in ([0, 1, 2, 3], [0, 2, 4, 6], [9, 4, 5, 9]))
    variable, first, last = without_rows(ranges, np.array([0, 1, 2]), 4, 7)
    result = sorted(zip(variable.tolist(), first.tolist(), last.tolist(), strict=True))
    assert result == [(0, 0, 3), (0, 7, 9), (1, 2, 3), (3, 6, 9)]
    assert first.tolist() == sorted(first.tolist())
