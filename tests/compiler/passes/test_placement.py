"""Memory: categories, peaks, placement without collisions, and the out-of-memory text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.types import FLOAT, INT, float32, int32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.spec import CodeletSpec
from tremula.compiler.passes.memory import CATEGORIES, PARTS, out_of_memory_error
from tremula.compiler.passes.sweeps import place_ranges, scratch_to_place, sweep_peak
from tremula.hardware import chip
from tremula.poplar import programs as p

KIB = 1024


class Move(Vertex):
    x: Input[Vector[float32]]
    y: Output[Vector[float32]]
    scale: float32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * self.scale

    def cycles(v, chip):
        return v.sizes["x"]


class Divide(Vertex):
    n: Input[int32]
    m: Output[int32]

    def compute(self):
        self.m = self.n // 3


class DivideTwice(Vertex):
    n: Input[int32]
    m: Output[int32]

    def compute(self):
        self.m = self.n // 3 + self.n // 5


class Interleaved(Vertex):
    x: Input[Vector[float32, "SPAN", 16, True]]  # noqa: F821 (a layout, no annotation)
    y: Output[Vector[float32]]

    def compute(self):
        self.y[0] = self.x[0]

    def cycles(v, chip):
        return v.sizes["x"]


def chain(graph, n_bytes, n_links=3, tile=0):
    """a → b → c …: each link alive only until the next is made; the last goes to the host."""
    links = [
        graph.add_variable(FLOAT, [n_bytes // 4], f"v{i}", mapping=tile) for i in range(n_links)
    ]
    graph.create_host_write("in", links[0])
    graph.create_host_read("out", links[-1])
    return p.Sequence([p.Copy(a, b) for a, b in pairwise(links)])


def _error_of(result):
    variables = result.low.graph.variables
    return out_of_memory_error(result.memory, result.liveness, variables, chip("gc200"))


items = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 9), st.integers(0, 5), st.integers(1, 40),
        st.sampled_from([1, 8, 16]), st.integers(0, 20),
    ),
    min_size=1,
    max_size=14,
)  # fmt: skip


@settings(max_examples=150)
@given(items)
def test_nothing_that_lives_together_collides(rows):
    """First-fit keeps alignment and bounds, and never overlaps ranges that are live together."""
    rows = sorted(rows, key=lambda row: row[:2])
    tile, first, length, size, align, lowest = np.array(rows, np.int64).T.copy()
    last = first + length
    start = np.searchsorted(tile, np.arange(4))
    address, highest = np.zeros(len(rows), np.int64), np.zeros(3, np.int64)
    ranges, scratch = (start, first, last, size, size), scratch_to_place(start, first)
    place_ranges(*ranges, lowest, align, 1, address, highest, *scratch)
    assert (scratch[-1] == -1).all()
    assert (address % align == 0).all()
    assert (address >= lowest).all()
    for i in range(len(rows)):
        assert address[i] + size[i] <= highest[tile[i]]
        for j in range(i):
            together = tile[i] == tile[j] and first[i] <= last[j] and first[j] <= last[i]
            apart = address[i] + size[i] <= address[j] or address[j] + size[j] <= address[i]
            assert apart or not together
        fits = (at for at in range(int(lowest[i]), 2000) if at % align[i] == 0)
        before = [j for j in range(i) if tile[i] == tile[j] and last[j] >= first[i]]
        assert address[i] == next(
            at
            for at in fits
            if all(at + size[i] <= address[j] or address[j] + size[j] <= at for j in before)
        )


@pytest.mark.parametrize("seed", range(3))
def test_many_items_get_the_lowest_address(seed):
    """First-fit of hundreds of items of odd sizes, most of which live long, as activations do."""
    random = np.random.default_rng(seed)
    n = 300
    first = np.sort(random.integers(0, 100, n))
    last = first + random.choice([0, 2, 200], n, p=[0.3, 0.3, 0.4])
    size, align = random.integers(1, 60, n), random.choice([8, 64], n, p=[0.9, 0.1])
    lowest = random.choice([24, 4000], n, p=[0.8, 0.2])
    address, start = np.zeros(n, np.int64), np.array([0, n])
    padded, highest = -(-size // 8) * 8, np.zeros(1, np.int64)
    ranges, scratch = (start, first, last, size, padded), scratch_to_place(start, first)
    place_ranges(*ranges, lowest, align, 8, address, highest, *scratch)
    for i in range(n):
        others = np.flatnonzero(last[:i] >= first[i])
        low, high = address[others], address[others] + size[others]
        at = -(-lowest[i] // align[i]) * align[i]
        while ((at < high) & (low < at + size[i])).any():
            at += align[i]
        assert address[i] == at


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4)), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=8, max_size=8),
    st.lists(st.integers(0, 1), min_size=8, max_size=8),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
)
def test_peak_is_the_largest_moment(ranges, buffers, is_less, less):
    """The peak of a tile is the largest sum of live variables and buffers over all instructions.

    In some, part of what is live does not count.
    """
    n, n_tiles = 8, 3
    first = np.array([r[0] for r in ranges])
    last = np.minimum(first + np.array([r[1] for r in ranges]), n - 1)
    tile_start = np.arange(len(ranges) + 1) * n_tiles
    tile = np.tile(np.arange(n_tiles), len(ranges))
    size = (np.arange(len(tile)) * 7) % 11
    order, by_last = np.argsort(first, kind="stable"), np.argsort(last, kind="stable")
    at = np.arange(n + 1)
    peak, peak_at = np.zeros(n_tiles, np.int64), np.full(n_tiles, -1, np.int64)
    temporary = np.array(buffers, np.int64)
    absent = np.array([[0] * n_tiles, less], np.int64)
    sweep_peak(
        np.searchsorted(first[order], at), order, np.searchsorted(last[by_last], at), by_last,
        tile_start, tile, size, np.arange(n), temporary,
        np.array(is_less), absent, peak, peak_at, np.zeros_like(peak),
    )  # fmt: skip
    moments = np.array(
        [
            sum(
                size.reshape(-1, n_tiles)[v] for v in range(len(ranges)) if first[v] <= i <= last[v]
            )
            + temporary[i]
            - absent[is_less[i]]
            for i in range(n)
        ]
    )
    np.testing.assert_array_equal(peak, np.maximum(moments.max(axis=0), 0))
    for t in range(n_tiles):
        assert peak[t] == 0 or moments[peak_at[t], t] == peak[t]


def test_temporaries_share_memory(small_graph, analysed):
    """Variables that are never live together take the room of the largest pair."""
    result = analysed(*_with_graph(small_graph, 8 * KIB, n_links=6))
    memory = result.memory
    assert memory.category("Variables")[0] == 2 * 8 * KIB + 2 * 8 * KIB
    assert memory.temporary[CATEGORIES.index("Variables"), 0] == 2 * 8 * KIB
    assert not memory.is_full.any()
    np.testing.assert_array_equal(memory.including_gaps >= memory.excluding_gaps, True)


def _with_graph(small_graph, n_bytes, **more):
    graph = small_graph()
    return graph, chain(graph, n_bytes, **more)


def test_routines_lie_once_on_a_tile(small_graph, analysed):
    """Two codelets that divide integers share the routine for it."""
    graph = small_graph()
    data = graph.add_variable(INT, [4], "data", mapping=0)
    cs = graph.add_compute_set("cs")
    for place, codelet in ((0, Divide), (2, DivideTwice)):
        graph.add_vertex(cs, codelet, {"n": data[place], "m": data[place + 1]}, tile=0)
    result = analysed(graph, p.Execute(cs))
    specs = [table.codelet.spec for table in result.low.graph.compute_sets[0].tables]
    n_routine = dict(specs[0].routines)["integer_divide"]
    n_instructions = specs[0].n_instructions + specs[1].n_instructions + n_routine
    n_code = n_instructions * chip("gc200").instruction_bytes
    assert result.memory.category("Vertex Code").tolist() == [n_code, 0, 0, 0]


def test_categories(small_graph, analysed):
    """Code is there once per tile and codelet, instances per vertex, stacks on every tile."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [16], "data", mapping=0)
    out = graph.add_variable(FLOAT, [16], "out", mapping=0)
    constant = graph.add_constant(FLOAT, [4], 1.0)
    cs = graph.add_compute_set("cs")
    for i in range(3):
        part = slice(4 * i, 4 * i + 4)
        graph.add_vertex(cs, Move, {"x": data[part], "y": out[part], "scale": 2.0}, tile=i // 2)
    program = p.Sequence([p.Copy(constant, data[0:4]), p.Execute(cs)])
    result = analysed(graph, program)
    memory, machine = result.memory, chip("gc200")
    spec = result.low.graph.compute_sets[0].tables[0].codelet.spec
    n_code = spec.n_instructions * machine.instruction_bytes
    assert memory.category("Vertex Code").tolist() == [n_code, n_code, 0, 0]
    assert memory.category("Vertex Instances").tolist() == [40, 20, 0, 0]  # two spans and a float
    assert memory.category("Constants").tolist() == [16, 0, 0, 0]
    stack = 6 * machine.n_bytes_worker_stack + machine.n_bytes_supervisor_stack
    assert memory.category("Stack").tolist() == [stack] * 4
    received = machine.n_bytes_exchange_code_per_phase
    received += 2 * machine.n_bytes_exchange_code_per_receive_control
    assert memory.category("Internal Exchange Code")[1] >= received
    parts = dict(zip(PARTS, memory.vertices.bytes_of_part.tolist(), strict=True))
    assert parts["Internal vertex state"] == 12
    assert parts["Edge pointers"] == 48
    assert memory.vertices.bytes_of_type == {"Move": 60}
    assert memory.always_live.shape == memory.temporary.shape == (len(CATEGORIES), 4)


def test_a_chip_has_the_control_code_of_its_own_steps(small_graph, analysed):
    """Steps on one chip are no code on the other; what crosses is code on both."""
    graph = small_graph(2, 2)
    on_first = chain(graph, 4 * KIB, n_links=4)
    x, y = (
        graph.add_variable(FLOAT, [64], name, mapping=tile) for name, tile in (("x", 1), ("y", 3))
    )
    graph.create_host_write("x", x)
    graph.create_host_read("y", y)
    memory = analysed(graph, [p.Sequence(on_first, p.Copy(x, y))]).memory
    code = memory.category("Control Code")
    per_step = 2 * chip("gc200").instruction_bytes
    assert code[0] == code[1]
    assert code[2] == code[3]
    assert code[0] - code[2] == 3 * per_step
    assert code[2] >= per_step


def test_exchange_buffers_are_temporary(small_graph, analysed):
    """Data that a vertex reads from another tile needs a buffer while the step runs."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [256], "data", mapping=0)
    out = graph.add_variable(FLOAT, [256], "out", mapping=1)
    graph.create_host_read("out", out)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Move, {"x": data, "y": out, "scale": 2.0}, tile=1)
    memory = analysed(graph, p.Execute(cs)).memory
    assert memory.temporary.sum(axis=0).tolist() == [0, 1024, 0, 0]
    assert memory.peak_at[1] == 0


def test_out_of_memory_text(small_graph, analysed):
    """The error names the worst tile, bytes needed and there, the largest things, and the hint."""
    graph = small_graph()
    big = graph.add_variable(FLOAT, [170_000], "big", mapping=2)
    small = graph.add_variable(FLOAT, [1000], "small", mapping=2)
    graph.create_host_read("big", big)
    result = analysed(graph, p.Copy(big[0:1000], small))
    assert result.memory.is_full.tolist() == [False, False, True, False]
    error = _error_of(result)
    text = str(error)
    machine = chip("gc200")
    assert "Out of memory on 1 tile: tile 2 needs" in text
    assert f"bytes but has {machine.n_bytes_available_per_tile:,} (" in text
    assert "largest: 'big' 680,000; 'small' 4,000; stack 1,760" in text
    assert "test_placement.py" in text
    assert "try: spread 'big' over more tiles" in text


def test_no_error_when_all_fits(small_graph, analysed):
    """A program that fits has no error."""
    result = analysed(*_with_graph(small_graph, 64))
    assert _error_of(result) is None


def test_code_must_fit_region_0(small_graph, analysed, monkeypatch):
    """More code than region 0 holds is out of memory, however empty the tile is."""
    graph = small_graph()
    data, out = (graph.add_variable(FLOAT, [4], name, mapping=0) for name in ("x", "y"))
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Move, {"x": data, "y": out, "scale": 1.0}, tile=0)
    codelet = graph.state.codelets["Move"]
    fields = {f: getattr(codelet.spec, f) for f in CodeletSpec.__dataclass_fields__}
    grown = CodeletSpec(**{**fields, "n_instructions": 250 * KIB // 4})
    monkeypatch.setattr(codelet, "spec", grown)
    result = analysed(graph, p.Execute(cs))
    assert result.memory.is_full.tolist() == [True, False, False, False]
    text = str(_error_of(result))
    assert "largest: vertex code 256,000" in text
    room = chip("gc200").n_bytes_region0
    assert f"bytes of code but has {room:,} for it" in text


def test_elements_apart_leave_gaps(small_graph, analysed, monkeypatch):
    """Fields that need different memory elements start at element boundaries."""
    graph = small_graph()
    data, out = (graph.add_variable(FLOAT, [64], name, mapping=0) for name in ("x", "y"))
    graph.create_host_write("x", data)
    graph.create_host_read("y", out)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Move, {"x": data, "y": out, "scale": 1.0}, tile=0)
    plain = analysed(graph, p.Execute(cs)).memory
    codelet = graph.state.codelets["Move"]
    fields = {f: getattr(codelet.spec, f) for f in CodeletSpec.__dataclass_fields__}
    apart = CodeletSpec(**{**fields, "constraints": ("elem(*x) != elem(*y)",)})
    monkeypatch.setattr(codelet, "spec", apart)
    memory = analysed(graph, p.Execute(cs)).memory
    element = chip("gc200").n_bytes_memory_element
    assert plain.including_gaps[0] - plain.excluding_gaps[0] < 8
    assert memory.excluding_gaps[0] == plain.excluding_gaps[0]
    assert memory.including_gaps[0] == 2 * element + 256


def test_interleaved_fields_need_region_1(small_graph, analysed):
    """Interleaved data that does not fit region 1 is out of memory though the tile has room."""
    machine = chip("gc200")
    for n_bytes, is_full in ((400 * KIB, False), (420 * KIB, True)):
        graph = small_graph()
        data = graph.add_variable(FLOAT, [n_bytes // 4], "data", mapping=0)
        out = graph.add_variable(FLOAT, [1], "out", mapping=0)
        graph.create_host_write("data", data)
        cs = graph.add_compute_set("cs")
        graph.add_vertex(cs, Interleaved, {"x": data, "y": out}, tile=0)
        memory = analysed(graph, p.Execute(cs)).memory
        assert memory.including_gaps[0] < machine.n_bytes_available_per_tile
        assert memory.is_full[0] == is_full


@pytest.mark.parametrize("chip_name", ["gc2", "gc200"])
def test_regions_add_up(analysed, chip_name):
    """Bytes in both regions and overflow make up all bytes in use."""
    from tremula.poplar.graph import Graph
    from tremula.poplar.target import IPUModel

    graph = Graph(IPUModel(chip_name, 1, 4).create_device())
    memory = analysed(graph, chain(graph, 60 * KIB)).memory
    place = memory.placement
    total = place.region0 + place.region1
    assert abs(total - memory.excluding_gaps).max() < 8  # rounded up to a word pair
    assert not place.overflowed.any()
