"""Liveness: against an interpreter that tries every path of random programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.types import INT
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.liveness import accesses_of, analyse_liveness
from tremula.compiler.program_ir import Opcode
from tremula.poplar import programs as p

N_VARIABLES = 5

leaves = st.one_of(
    st.tuples(st.just("copy"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("part"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("undef"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("call"), st.integers(0, 1), st.just(0)),
)
trees = st.recursive(
    st.lists(leaves, min_size=1, max_size=3).map(lambda steps: ("sequence", steps)),
    lambda inner: st.one_of(
        st.tuples(st.just("if"), st.integers(0, 4), inner, inner),
        st.tuples(st.just("while"), st.integers(0, 4), inner, inner),
        st.tuples(st.just("repeat"), st.integers(0, 2), inner),
        st.tuples(st.just("switch"), st.integers(0, 4), inner, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda steps: ("sequence", steps)),
    ),
    max_leaves=5,
)


def program_of(tree, variables, functions):
    """The program that a tree describes."""

    def build(part):
        kind = part[0]
        if kind == "sequence":
            return p.Sequence([build(step) for step in part[1]])
        if kind == "if":
            return p.If(variables[part[1]][0], build(part[2]), build(part[3]))
        if kind == "while":
            return p.RepeatWhileTrue(build(part[2]), variables[part[1]][0], build(part[3]))
        if kind == "repeat":
            return p.Repeat(part[1], build(part[2]))
        if kind == "switch":
            return p.Switch(variables[part[1]][0], {1: build(part[2]), 2: build(part[3])})
        if kind == "call":
            return p.Call(functions[part[1] % len(functions)]) if functions else p.Sequence()
        if kind == "undef":
            return p.WriteUndef(variables[part[1]])
        source, goal = variables[part[1]], variables[part[2]]
        return p.Copy(source, goal) if kind == "copy" else p.Copy(source[0:2], goal[1:3])

    return build(tree)


def next_states(low, state):
    """States (instruction, stack of return addresses) that may follow: every branch both ways."""
    i, stack = state
    op, a, b, c, d, e = low.code[i].tolist()
    if op == Opcode.END:
        return []
    if op == Opcode.RETURN:
        return [(stack[-1], stack[:-1])]
    if op == Opcode.CALL:
        return [(a, (*stack, i + 1))]
    targets = {
        Opcode.JUMP: [a],
        Opcode.LOOP_BEGIN: [i + 1] if b else [c],
        Opcode.LOOP_END: [b, i + 1],
        Opcode.BRANCH_ZERO: [i + 1, c],
        Opcode.BRANCH_NONZERO: [i + 1, c],
        Opcode.SWITCH: [*low.switch_cases[c:d, 1].tolist(), e],
    }.get(op, [i + 1])
    return [(t, stack) for t in targets]


def reachable(low):
    states, waiting = set(), [(entry, ()) for entry in low.entries]
    while waiting:
        state = waiting.pop()
        if state not in states:
            states.add(state)
            waiting += next_states(low, state)
    return states


def is_live(low, accesses, state, variable):
    """Is the variable used on some path from here before it is overwritten?"""
    seen, waiting = set(), [state]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        step = low.step_of[at[0]]
        if step >= 0:
            if variable in accesses[step].used:
                return True
            if variable in accesses[step].overwritten:
                continue
        waiting += next_states(low, at)
    return False


def brute_force_by_state(low):
    """(always-live variables, variables that need memory in each reachable state)."""
    accesses = accesses_of(low)
    states = reachable(low)
    live = {s: {v for v in range(N_VARIABLES) if is_live(low, accesses, s, v)} for s in states}
    always = {v for entry in low.entries for v in live[entry, ()]}
    needed: dict[tuple, set] = {}
    for state in states:
        here = needed[state] = set(live[state])
        # What a function leaves is live behind the call, not where the call stands.
        if low.code[state[0], 0] != Opcode.CALL:
            here |= {v for after in next_states(low, state) for v in live[after]}
        step = low.step_of[state[0]]
        if step >= 0:
            here |= {*accesses[step].used.tolist(), *accesses[step].overwritten.tolist()}
    return always, needed


def brute_force(low):
    """(always-live variables, variables that need memory at each reachable instruction)."""
    always, of_state = brute_force_by_state(low)
    needed: dict[int, set] = {}
    for (instruction, _), here in of_state.items():
        needed.setdefault(instruction, set()).update(here)
    return always, needed


@pytest.mark.slow
@settings(max_examples=80)
@given(trees, st.lists(trees, max_size=2), st.booleans())
def test_liveness_matches_every_path(small_graph, tree, bodies, starts_clean):
    """A variable has memory exactly where some path still uses it, or a step touches it."""
    graph = small_graph()
    variables = [graph.add_variable(INT, [4], f"v{i}", mapping=0) for i in range(N_VARIABLES)]
    functions: list = []
    for number, body in enumerate(bodies):
        functions = [
            *functions,
            graph.add_function(program_of(body, variables, functions), f"f{number}"),
        ]
    fresh = [p.WriteUndef(v) for v in variables] if starts_clean else []
    low = lower(graph, p.Sequence([*fresh, program_of(tree, variables, functions)]))
    result = analyse_liveness(low)
    always, needed = brute_force(low)
    assert set(np.flatnonzero(result.always_live).tolist()) == always
    for instruction, expected in needed.items():
        behind_call = set()
        if low.code[instruction, 0] == Opcode.CALL:
            behind_call = needed.get(instruction + 1, set())
        got = set(result.live_at(instruction).tolist())
        assert expected - always <= got
        assert got <= (expected | behind_call) - always


def test_what_is_always_live(small_graph):
    """Handles, initial values, constants and values kept between runs are always live."""
    graph = small_graph()
    names = ("read", "written", "initial", "temporary", "kept", "unused")
    v = {name: graph.add_variable(INT, [4], name, mapping=1) for name in names}
    constant = graph.add_constant(INT, [4], 3, "constant")
    graph.create_host_read("r", v["read"])
    graph.create_host_write("w", v["written"])
    graph.set_initial_value(v["initial"], 5)
    first = p.Sequence([p.Copy(constant, v["temporary"]), p.Copy(v["temporary"], v["read"])])
    second = p.Copy(v["kept"], v["read"])
    third = p.Sequence([p.Copy(v["initial"], v["kept"]), p.Copy(v["written"], v["kept"])])
    result = analyse_liveness(lower(graph, [first, second, third]))
    names = [*names, "constant"]
    is_always = {n for n, flag in zip(names, result.always_live, strict=True) if flag}
    assert is_always == {"read", "written", "initial", "kept", "constant"}
    assert not result.is_used[names.index("unused")]
    ranges = zip(result.range_variable, result.range_first, result.range_last, strict=True)
    assert list(ranges) == [(names.index("temporary"), 0, 1)]


def test_partial_writes_keep_a_variable_alive_unless_undef(small_graph):
    """A variable written in parts is always live, but not after WriteUndef."""
    for starts_undefined in (False, True):
        graph = small_graph()
        source = graph.add_constant(INT, [2], 1)
        data = graph.add_variable(INT, [4], "data", mapping=0)
        sink = graph.add_variable(INT, [4], "sink", mapping=0)
        steps = [p.Copy(source, data[0:2]), p.Copy(source, data[2:4]), p.Copy(data, sink)]
        if starts_undefined:
            steps.insert(0, p.WriteUndef(data))
        result = analyse_liveness(lower(graph, p.Sequence(steps)))
        assert result.always_live[1] == (not starts_undefined)


def test_compute_set_that_writes_all_of_a_variable(small_graph, touch):
    """Outputs of several vertices together overwrite a variable; InOut does not."""
    for field, is_always in (("writes", False), ("changes", True)):
        graph = small_graph()
        data = graph.add_variable(INT, [4], "data", mapping=0).reinterpret("float")
        cs = graph.add_compute_set("cs")
        for i in range(2):
            edges = dict.fromkeys(("reads", "changes", "writes"), data[0:0])
            graph.add_vertex(cs, touch, edges | {field: data[2 * i : 2 * i + 2]}, tile=0)
        result = analyse_liveness(lower(graph, p.Execute(cs)))
        assert bool(result.always_live[0]) is is_always


def test_bytes_on_tiles(small_graph):
    """Bytes of a variable on each tile come from its map."""
    graph = small_graph()
    data = graph.add_variable(INT, [10], "data")
    graph.set_tile_mapping(data[0:3], 2)
    graph.set_tile_mapping(data[3:4], 1)
    graph.set_tile_mapping(data[4:10], 2)
    graph.create_host_read("data", data)
    result = analyse_liveness(lower(graph, p.Sequence()))
    assert result.tile.tolist() == [1, 2]
    assert result.tile_bytes.tolist() == [4, 36]
    assert result.always_live_bytes(4).tolist() == [0, 4, 36, 0]
