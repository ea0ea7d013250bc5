"""Races: found exactly where two vertices meet on an element that one of them writes."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.errors import GraphCycleError
from tremula.base.types import FLOAT
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.verify import check_races
from tremula.poplar import programs as p

N_ELEMS = 10
FIELDS = ("reads", "changes", "writes")


@st.composite
def slices(draw):
    """A slice of the variable, often empty, sometimes with a step."""
    begin = draw(st.integers(0, N_ELEMS - 1))
    length = draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
    step = draw(st.sampled_from([1, 1, 2, -1]))
    return range(N_ELEMS)[begin : begin + length][::step]


def as_view(tensor, picked):
    """The tensor's elements that a range names."""
    stop = picked.stop if picked.stop >= 0 else None
    return tensor[picked.start : stop : picked.step] if len(picked) else tensor[0:0]


def is_race(vertices):
    """Brute force over elements of all pairs of vertices."""
    for left, right in combinations(vertices, 2):
        for one, other in ((left, right), (right, left)):
            written = set(one["changes"]) | set(one["writes"])
            touched = {e for field in FIELDS for e in other[field]}
            if written & touched:
                return True
    return False


def frozen(graph, touch, variable, vertices):
    cs = graph.add_compute_set("cs")
    for vertex in vertices:
        fields = {name: as_view(variable, picked) for name, picked in vertex.items()}
        graph.add_vertex(cs, touch, fields, tile=0)
    return lower(graph, p.Execute(cs)).graph


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(st.fixed_dictionaries({f: slices() for f in FIELDS}), min_size=1, max_size=4))
def test_races_are_found_exactly(small_graph, touch, vertices):
    """A race is reported if and only if brute force over elements finds one."""
    graph = small_graph()
    variable = graph.add_variable(FLOAT, [N_ELEMS], "data", mapping=0)
    program = frozen(graph, touch, variable, vertices)
    if is_race(vertices):
        with pytest.raises(GraphCycleError):
            check_races(program.compute_sets[0], program.variables)
    else:
        check_races(program.compute_sets[0], program.variables)


def test_one_vertex_may_alias_its_own_fields(small_graph, touch):
    """Elements that appear in several fields of one vertex are not a race."""
    graph = small_graph()
    variable = graph.add_variable(FLOAT, [N_ELEMS], "data", mapping=0)
    everything = dict.fromkeys(FIELDS, range(N_ELEMS))
    program = frozen(graph, touch, variable, [everything])
    check_races(program.compute_sets[0], program.variables)


def test_reader_behind_a_longer_read_of_the_writer_is_seen(small_graph, touch):
    """A vertex that itself reads further does not hide another reader of what it writes."""
    graph = small_graph()
    variable = graph.add_variable(FLOAT, [N_ELEMS], "data", mapping=0)
    writer = {"reads": range(9), "changes": range(0), "writes": range(5, 6)}
    reader = {"reads": range(8), "changes": range(0), "writes": range(0)}
    program = frozen(graph, touch, variable, [reader, writer])
    with pytest.raises(
        GraphCycleError, match=r"elements \[5, 6\) of variable 'data' that are read"
    ):
        check_races(program.compute_sets[0], program.variables)


@pytest.mark.parametrize(("field", "verb"), [("writes", "written"), ("reads", "read")])
def test_race_names_both_vertices(small_graph, touch, field, verb):
    """The text names field, elements, variable, compute set, the other field and both lines."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [8], "data", mapping=0)
    empty = dict.fromkeys(FIELDS, data[0:0])
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, touch, empty | {"writes": data[0:5]}, tile=0)
    graph.add_vertex(cs, touch, empty | {field: data[3:8]}, tile=2)
    program = lower(graph, p.Execute(cs)).graph
    with pytest.raises(GraphCycleError) as caught:
        check_races(program.compute_sets[0], program.variables)
    text = str(caught.value)
    assert "Field Touch.writes of a vertex on tile" in text
    assert f"writes elements [3, 5) of variable 'data' that are {verb} elsewhere" in text
    assert "in compute set 'cs'" in text
    assert f"field Touch.{field}" in text
    assert text.count("test_races.py:") == 2
    assert "double-buffer" in text
