"""Verification: each check has an error that names the culprit and the hint."""

import pytest

from tremula.base.errors import (
    GraphConnectionError,
    InvalidTileMapping,
    MemoryElemConstraintsError,
    OverflowInField,
    StreamMemoryAllocationError,
)
from tremula.base.types import FLOAT, float32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.spec import CodeletSpec
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.verify import CHECKS, verify
from tremula.poplar import programs as p


class ShortSpan(Vertex):
    x: Input[Vector[float32, "SHORT_SPAN"]]  # noqa: F821 (a layout, no annotation)
    y: Output[float32]

    def compute(self):
        self.y = self.x[0]


def with_vertex(graph, touch, tile=0, **fields):
    data = graph.add_variable(FLOAT, [8], "spare", mapping=0)
    cs = graph.add_compute_set("my set")
    empty = dict.fromkeys(("reads", "changes", "writes"), data[0:0])
    graph.add_vertex(cs, touch, empty | fields, tile=tile)
    return lower(graph, p.Execute(cs))


def test_good_program_passes(small_graph, touch):
    """A mapped, race-free program passes every named check."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [8], "data", mapping="linear")
    verify(with_vertex(graph, touch, reads=data, writes=data[2:4]))
    assert len({name for name, _ in CHECKS}) == len(CHECKS)


def test_unmapped_vertex(small_graph, touch):
    """An unmapped vertex is named with its compute set and source line."""
    low = with_vertex(small_graph(), touch, tile=-1)
    with pytest.raises(InvalidTileMapping) as caught:
        verify(low)
    text = str(caught.value)
    assert "a vertex Touch in compute set 'my set' is not mapped to a tile" in text
    assert "expected a tile from 0 to 3" in text
    assert "test_verify.py" in text
    assert "set_tile_mapping" in text


def test_unmapped_edge(small_graph, touch):
    """Unmapped elements of an edge are named."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [8], "data")
    graph.set_tile_mapping(data[0:5], 1)
    with pytest.raises(InvalidTileMapping, match=r"elements \[5, 8\) of variable 'data' are not"):
        verify(with_vertex(graph, touch, reads=data))


def test_unmapped_copy(small_graph):
    """Unmapped elements of a copy are named, too."""
    graph = small_graph()
    a, b = graph.add_variable(FLOAT, [4], "a", mapping=0), graph.add_variable(FLOAT, [4], "b")
    with pytest.raises(InvalidTileMapping, match=r"elements \[0, 4\) of variable 'b'"):
        verify(lower(graph, p.Copy(a, b)))


def test_constant_written(small_graph, touch):
    """A field that writes a constant is refused by name."""
    graph = small_graph()
    one = graph.add_constant(FLOAT, [4], 1.0, "one")
    with pytest.raises(GraphConnectionError, match=r"Touch.writes .* writes to the constant 'one'"):
        verify(with_vertex(graph, touch, writes=one))


@pytest.mark.parametrize("how", ["broadcast", "slices"])
def test_element_written_twice(small_graph, touch, how):
    """A written field must not hold an element twice."""
    from tremula.poplar.tensors.tensor import concat

    graph = small_graph()
    data = graph.add_variable(FLOAT, [4], "data", mapping=0)
    twice = data[0:1].broadcast(3) if how == "broadcast" else concat([data[1:4], data[0:2]])
    with pytest.raises(
        GraphConnectionError, match=r"Touch.changes .* writes the same element twice"
    ):
        verify(with_vertex(graph, touch, changes=twice))


def test_short_span_is_short(small_graph):
    """A SHORT_SPAN holds 2047 elements and not one more."""
    for length, is_good in ((2047, True), (2048, False)):
        graph = small_graph()
        data = graph.add_variable(FLOAT, [length + 1], "data", mapping=0)
        cs = graph.add_compute_set("cs")
        graph.add_vertex(cs, ShortSpan, {"x": data[1:], "y": data[0]}, tile=0)
        low = lower(graph, p.Execute(cs))
        if is_good:
            verify(low)
        else:
            with pytest.raises(OverflowInField, match="at most 2047 elements, got 2048"):
                verify(low)


class Scale(Vertex):
    x: Input[Vector[float32]]
    y: Output[Vector[float32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * 2


@pytest.mark.parametrize(
    ("home_of_x", "first", "is_good"), [(0, 0, False), (0, 4, True), (1, 4, True)]
)
def test_memory_elements_cannot_be_shared(small_graph, monkeypatch, home_of_x, first, is_good):
    """Fields that want different memory elements may not be the same data of their tile."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [8], "data", mapping=0)
    graph.set_tile_mapping(data[4:], home_of_x)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Scale, {"x": data[first : first + 4], "y": data[2:4]}, tile=0)
    codelet = graph.state.codelets["Scale"]
    fields = {f: getattr(codelet.spec, f) for f in CodeletSpec.__dataclass_fields__}
    apart = CodeletSpec(**{**fields, "constraints": ("elem(*x) != elem(*y)",)})
    monkeypatch.setattr(codelet, "spec", apart)
    low = lower(graph, p.Execute(cs))
    check = dict(CHECKS)["memory elements can differ"]
    if is_good:
        check(low)
    else:
        with pytest.raises(MemoryElemConstraintsError, match="fields x and y of Scale share"):
            check(low)


def test_remote_buffers_fit_the_streaming_memory(small_graph):
    """Buffers larger than the memory of the machines are refused; the largest is named."""
    for n_rows, is_good in ((1, True), (1 << 20, False)):
        graph = small_graph()
        graph.add_remote_buffer("store", FLOAT, 1 << 18, repeats=n_rows)
        low = lower(graph, p.Sequence())
        if is_good:
            verify(low)
        else:
            with pytest.raises(StreamMemoryAllocationError, match="the largest is 'store'"):
                verify(low)
