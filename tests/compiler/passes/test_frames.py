"""Frames: what lives in a function shares memory with other functions, never with its callers."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.passes.test_calls import two_calls
from tests.compiler.passes.test_liveness import N_VARIABLES, brute_force_by_state, program_of, trees
from tremula.base.types import INT
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.liveness import analyse_liveness
from tremula.compiler.passes.placement import Needs, SpecialMemory, addresses
from tremula.hardware import chip
from tremula.poplar import programs as p


def placed(low, live):
    """The address of each variable on tile 0, or -1."""
    nothing = np.empty(0, np.int64)
    zeros = np.zeros(low.graph.target.n_tiles, np.int64)
    result = addresses(chip("gc200"), live, SpecialMemory(nothing, nothing), Needs(*[zeros] * 3))
    at = np.full(len(live.always_live), -1, np.int64)
    for v in range(len(at)):
        mine = np.arange(live.tile_start[v], live.tile_start[v + 1])
        at[v] = result[mine[0]] if len(mine) else -1
    return at


@settings(max_examples=60)
@given(trees, trees, trees, st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_what_is_live_together_lies_apart(small_graph, tree, inner, outer, sizes):
    """In no state of a program do two variables that are needed overlap."""
    graph = small_graph()
    variables = [graph.add_variable(INT, [4], f"v{i}", mapping=0) for i in range(N_VARIABLES)]
    f = graph.add_function(program_of(inner, variables, []), "f")
    g = graph.add_function(program_of(outer, variables, [f]), "g")
    fresh = [p.WriteUndef(v) for v in variables]
    programs = [
        p.Sequence([*fresh, program_of(tree, variables, [f, g]), p.Call(g)]),
        p.Sequence([*fresh, p.Call(f), program_of(tree, variables, [g, f])]),
    ]
    assert_apart(lower(graph, programs), 4 * np.array(sizes))


def assert_apart(low, size):
    """Of variables with these sizes, no two that are needed in a state overlap."""
    live = analyse_liveness(low)
    live.tile_bytes[:] = size[np.flatnonzero(np.diff(live.tile_start))]
    at = placed(low, live)
    always, needed = brute_force_by_state(low)
    for here in needed.values():
        spans = sorted((int(at[v]), int(at[v]) + size[v]) for v in here - always)
        assert all(begin >= 0 for begin, _ in spans)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def five_variables(graph):
    """The first is written by the host, the last is read."""
    v = [graph.add_variable(INT, [4], f"v{i}", mapping=0) for i in range(N_VARIABLES)]
    graph.create_host_write("in", v[0])
    graph.create_host_read("out", v[4])
    return v


def test_callers_lie_above_all_that_is_called(small_graph):
    """What is live across a call lies above what the called function calls in turn."""
    graph = small_graph()
    v = five_variables(graph)
    inner = graph.add_function(p.Sequence([p.Copy(v[0], v[1]), p.Copy(v[1], v[4])]), "inner")
    own = [p.Copy(v[0], v[2]), p.Copy(v[2], v[4])]
    outer = graph.add_function(p.Sequence([*own, p.Call(inner)]), "outer")
    steps = [p.Copy(v[0], v[3]), p.Call(outer), p.Copy(v[3], v[4])]
    assert_apart(lower(graph, p.Sequence(steps)), np.array([16, 400, 16, 16, 16]))


def test_a_result_that_one_caller_reads_has_memory_in_all_calls(small_graph):
    """It belongs to what all callers have in common, not to the only one that reads it."""
    graph = small_graph()
    v = five_variables(graph)
    f = graph.add_function(p.Sequence([p.Copy(v[0], v[1])]), "f")
    g = graph.add_function(p.Sequence([p.Call(f), p.Copy(v[1], v[4])]), "g")
    steps = [p.Copy(v[0], v[3]), p.Call(f), p.Copy(v[3], v[4]), p.Call(g)]
    assert_apart(lower(graph, p.Sequence(steps)), np.full(5, 16))


def test_calls_need_no_more_than_the_fullest(small_graph, analysed):
    """What is live across one call lies where that of another did: nothing is lost to gaps."""
    graph = small_graph()
    program, _ = two_calls(graph)
    memory = analysed(graph, program).memory
    assert memory.including_gaps[0] - memory.excluding_gaps[0] < 16


def test_functions_share_a_place(small_graph):
    """Two functions that do not call each other have their variables at the same address."""
    graph = small_graph()
    v = five_variables(graph)
    one = graph.add_function(p.Sequence([p.Copy(v[0], v[1]), p.Copy(v[1], v[4])]), "one")
    other = graph.add_function(p.Sequence([p.Copy(v[0], v[2]), p.Copy(v[2], v[4])]), "other")
    across = [p.Copy(v[0], v[3]), p.Call(one), p.Call(other), p.Copy(v[3], v[4]), p.Call(one)]
    low = lower(graph, p.Sequence(across))
    live = analyse_liveness(low)
    at = placed(low, live)
    assert at[1] == at[2] < at[3]
