"""Vertex tables: however vertices are added and connected, the frozen columns are the same."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula import (
    FLOAT,
    INT,
    Graph,
    InOut,
    Input,
    IPUModel,
    Output,
    Slices,
    Vector,
    Vertex,
    concat,
    float32,
    int16,
    int32,
)
from tremula.base.errors import GraphConnectionError, NoSizeSpecified

N_TILES = 5


class Mixed(Vertex):
    """One field of each kind."""

    scalar: Input[float32]
    vector: Output[Vector[float32]]
    rows: Vector[Input[Vector[float32]]]
    scalars: Vector[InOut[int32]]
    state: int16
    table: Vector[float32]

    def compute(self):
        self.vector[0] = self.scalar


def small_graph():
    return Graph(IPUModel("ipu2", tiles_per_ipu=N_TILES).create_device())


def spell_out(table):
    """Every row of a frozen table as plain lists: tile, element addresses per field, state."""
    rows = []
    for row in range(table.n_rows):
        fields = {}
        for name, edge in table.edges.items():
            subs = range(edge.sub_start[row], edge.sub_start[row + 1])
            fields[name] = [
                edge.runs.take(np.arange(edge.run_start[s], edge.run_start[s + 1]))
                .addresses()
                .tolist()
                for s in subs
            ]
        for name, state in table.states.items():
            part = (
                slice(row, row + 1) if state.start is None else slice(*state.start[row : row + 2])
            )
            fields[name] = state.value[part].tolist()
        rows.append((int(table.tile[row]), fields))
    return rows


def frozen(graph, fill):
    """The one table that `fill(compute_set)` makes, frozen."""
    compute_set = graph.add_compute_set()
    fill(compute_set)
    (table,) = compute_set.distinct_tables()
    return table.freeze()


class Data:
    """Tensors for n vertices, scattered in several ways."""

    def __init__(self, graph, n, draw):
        x = graph.add_variable(FLOAT, [n, 3, 4], "x")
        spare = graph.add_variable(FLOAT, [n, 2], "spare")
        counts = graph.add_variable(INT, [n, 2], "counts")
        wide = graph.add_variable(FLOAT, [n, 6], "wide")
        vectors = [
            lambda: wide,
            lambda: wide[:, ::2],
            lambda: wide.reverse(1),
            lambda: concat([wide[:, 3:], spare], 1),
            lambda: wide[:, :1],
        ]
        rows = [
            lambda: x,
            lambda: x.dim_shuffle([0, 2, 1]),
            lambda: x[:, ::2],
            lambda: x[:, :, 1:2],
        ]
        scalars = [lambda: spare[:, 1], x[:, 0, 0].reverse]
        self.fields = {
            "scalar": draw(st.sampled_from(scalars))(),
            "vector": draw(st.sampled_from(vectors))(),
            "rows": draw(st.sampled_from(rows))(),
            "scalars": counts,
            "state": draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)),
            "table": np.arange(2 * n, dtype=np.float32).reshape(n, 2),
        }
        self.tiles = draw(st.lists(st.integers(0, N_TILES - 1), min_size=n, max_size=n))

    def row(self, i):
        return {name: values[i] for name, values in self.fields.items()}


@settings(max_examples=60)
@given(st.data())
def test_one_by_one_and_in_bulk_give_the_same_columns(data):
    """add_vertex, add_vertices, and any mixture of the two freeze to the same rows."""
    graph = small_graph()
    n = data.draw(st.integers(1, 5))
    given_data = Data(graph, n, data.draw)
    split = data.draw(st.integers(0, n))

    def add_one_by_one(compute_set):
        for i in range(n):
            graph.add_vertex(compute_set, Mixed, given_data.row(i), tile=given_data.tiles[i])

    def add_in_bulk(compute_set):
        graph.add_vertices(compute_set, Mixed, given_data.fields, tiles=given_data.tiles)

    def add_both(compute_set):
        for i in range(split):
            graph.add_vertex(compute_set, Mixed, given_data.row(i), tile=given_data.tiles[i])
        rest = {name: values[split:] for name, values in given_data.fields.items()}
        if split < n:
            graph.add_vertices(compute_set, Mixed, rest, tiles=given_data.tiles[split:])

    wanted = [
        (tile, spell_out_inputs(given_data.row(i)))
        for i, tile in sorted(enumerate(given_data.tiles), key=lambda item: item[1])
    ]
    for fill in (add_one_by_one, add_in_bulk, add_both):
        table = frozen(graph, fill)
        assert spell_out(table) == wanted
        assert all(
            len(column.sub_lengths()) == column.sub_start[-1] for column in table.edges.values()
        )
        assert table.edges["rows"].row_lengths().tolist() == [
            sum(map(len, fields["rows"])) for _, fields in wanted
        ]


def spell_out_inputs(row):
    """The fields of one vertex as spell_out would list them."""
    return {
        "scalar": [row["scalar"].addresses().ravel().tolist()],
        "vector": [row["vector"].addresses().tolist()],
        "rows": row["rows"].addresses().tolist(),
        "scalars": [[a] for a in row["scalars"].addresses().tolist()],
        "state": [row["state"]],
        "table": row["table"].tolist(),
    }


@settings(max_examples=60)
@given(st.data())
def test_connections_can_come_in_any_order(data):
    """Fields, list elements, tiles and state may be given at any time, in any order."""
    graph = small_graph()
    n = data.draw(st.integers(1, 4))
    given_data = Data(graph, n, data.draw)
    compute_set = graph.add_compute_set()
    vertices = [graph.add_vertex(compute_set, Mixed) for _ in range(n)]
    jobs = []
    for i, vertex in enumerate(vertices):
        row = given_data.row(i)
        graph.set_field_size(vertex["rows"], len(row["rows"]))
        graph.set_field_size(vertex["scalars"], len(row["scalars"]))
        jobs += [
            (graph.connect, vertex["scalar"], row["scalar"]),
            (graph.connect, vertex["vector"], row["vector"]),
            (graph.set_initial_value, vertex["state"], row["state"]),
            (graph.set_initial_value, vertex["table"], row["table"]),
            (graph.set_tile_mapping, vertex, given_data.tiles[i]),
        ]
        for name in ("rows", "scalars"):
            jobs += [(graph.connect, vertex[name][j], part) for j, part in enumerate(row[name])]
    for call, where, value in data.draw(st.permutations(jobs)):
        call(where, value)

    def add_one_by_one(other):
        for i in range(n):
            graph.add_vertex(other, Mixed, given_data.row(i), tile=given_data.tiles[i])

    (table,) = compute_set.distinct_tables()
    assert spell_out(table.freeze()) == spell_out(frozen(graph, add_one_by_one))


@settings(max_examples=60)
@given(st.data())
def test_slices_are_slices(data):
    """Slices of any view, grouped or not, connect what tensor.flatten()[begin:end] would."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [4, 6], "x")
    y = graph.add_variable(FLOAT, [8], "y")
    view = data.draw(
        st.sampled_from([x, x.transpose(), x[:, ::2], concat([x.flatten(), y]), y[2:3]])
    )
    n = data.draw(st.integers(1, 4))
    cut = st.lists(st.integers(0, view.n_elems), min_size=2, max_size=2).map(sorted)
    cuts = np.array(data.draw(st.lists(cut, min_size=n, max_size=n)))
    groups = sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2)))
    start = np.array([0, *groups, n])
    flat = view.flatten()
    parts = [flat[a:b] for a, b in cuts]
    tiles = np.arange(3)

    def add_slices(compute_set):
        rows = Slices(view, cuts[:, 0], cuts[:, 1], start)
        graph.add_vertices(compute_set, Rows, {"rows": rows}, tiles=tiles)

    def add_one_by_one(compute_set):
        for i in range(3):
            rows = parts[start[i] : start[i + 1]]
            graph.add_vertex(compute_set, Rows, {"rows": rows}, tile=i)

    table = frozen(graph, add_slices)
    assert spell_out(table) == spell_out(frozen(graph, add_one_by_one))
    assert table.edges["rows"].sub_lengths().tolist() == (cuts[:, 1] - cuts[:, 0]).tolist()

    def add_vectors(compute_set):
        graph.add_vertices(
            compute_set, Plain, {"x": Slices(view, cuts[:, 0], cuts[:, 1])}, tiles=1, n=n
        )

    wanted = [(1, {"x": [part.addresses().tolist()]}) for part in parts]
    assert spell_out(frozen(graph, add_vectors)) == wanted


class Rows(Vertex):
    rows: Vector[Input[Vector[float32]]]

    def compute(self):
        pass


class Plain(Vertex):
    x: Input[Vector[float32]]

    def compute(self):
        pass


def test_empty_fields_survive_a_mixture():
    """Vectors of no elements stay connected, in bulk, one by one and together."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [2, 4])
    both = concat([x[0], x[1, ::2]])

    def fill(compute_set):
        graph.add_vertices(compute_set, Plain, {"x": x[:, 0:0]}, tiles=[0, 1])
        graph.add_vertices(compute_set, Plain, {"x": Slices(both, [2, 1], [2, 1])}, tiles=[1, 1])
        graph.add_vertex(compute_set, Plain, {"x": x[0, 0:0]}, tile=2)
        graph.add_vertex(compute_set, Plain, {"x": both[3:3]}, tile=2)

    assert [fields["x"] for _, fields in spell_out(frozen(graph, fill))] == [[[]]] * 6


@pytest.mark.parametrize("tiles", [[0, 1, 1, 2, 3], [3, 0, 1, 1, 2]])
def test_rows_in_two_calls_are_those_of_one(tiles):
    """Lists of sub-vectors that are added in two calls make the column of a single call."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [6, 4]).transpose()
    begin, start = np.array([0, 5, 3, 3, 20, 9, 1]), np.array([0, 2, 2, 5, 6, 7])

    def fill(compute_set, *cuts):
        for a, b in pairwise(cuts):
            first, last = start[a], start[b]
            at = begin[first:last]
            rows = Slices(x, at, at + 3, start[a : b + 1] - first)
            graph.add_vertices(compute_set, Rows, {"rows": rows}, tiles=np.array(tiles[a:b]))

    one = frozen(graph, lambda compute_set: fill(compute_set, 0, 5))
    assert spell_out(frozen(graph, lambda compute_set: fill(compute_set, 0, 2, 5))) == spell_out(
        one
    )


def test_columns_that_only_count_are_one_in_memory():
    """Tables of vectors of one run each share where rows and runs begin, and their strides."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [40])

    def fill(compute_set):
        at = np.arange(0, 40, 4)
        graph.add_vertices(compute_set, Plain, {"x": Slices(x, at, at + 3)}, tiles=at[::-1] // 10)

    first, second = (frozen(graph, fill).edges["x"] for _ in range(2))
    for a, b in ((first.sub_start, first.run_start), (first.run_start, second.run_start)):
        assert np.shares_memory(a, b)
    assert np.shares_memory(first.runs.stride, second.runs.stride)


def test_empty_lists_survive_a_mixture():
    """A list field of no sub-vectors is connected, in bulk and one by one."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [8])

    def fill(compute_set):
        rows = Slices(x, [0], [3], [0, 0, 1])
        graph.add_vertices(compute_set, Rows, {"rows": rows}, tiles=[0, 1])
        graph.add_vertex(compute_set, Rows, {"rows": []}, tile=2)

    sizes = [len(fields["rows"]) for _, fields in spell_out(frozen(graph, fill))]
    assert sizes == [0, 1, 0]


def test_state_defaults_to_zero_and_one_value_serves_all():
    """State that was not set is zero; in bulk, one value or one per vertex may be given."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [3, 2])

    def fill(compute_set):
        fields = {"scalar": x[:, 0], "vector": x, "rows": x.expand([1]), "scalars": counts}
        graph.add_vertices(
            compute_set, Mixed, fields | {"state": 7, "table": [1.5, 2.5]}, tiles=[0, 1, 2]
        )
        graph.add_vertices(compute_set, Mixed, fields, tiles=[3, 3, 3])

    counts = graph.add_variable(INT, [3, 1])
    rows = spell_out(frozen(graph, fill))
    assert [fields["state"] for _, fields in rows] == [[7]] * 3 + [[0]] * 3
    assert [fields["table"] for _, fields in rows] == [[1.5, 2.5]] * 3 + [[]] * 3


def test_numbers_become_constants():
    """graph.connect gives an edge a constant tensor of the number."""
    graph = small_graph()
    vertex = graph.add_vertex(graph.add_compute_set(), Scalar, tile=0)
    graph.connect(vertex["x"], 2.5)
    (table,) = [vertex.table.freeze()]
    variable = graph.state.variables.id_at(int(table.edges["x"].runs.start[0]) * 4)
    assert graph.state.variables.is_constant[variable]


class Scalar(Vertex):
    x: Input[float32]

    def compute(self):
        pass


def test_estimates_follow_their_rows():
    """Cycles given for single vertices stay with them when rows are sorted by tile."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [3])
    compute_set = graph.add_compute_set()
    for tile in (2, 0, 1):
        vertex = graph.add_vertex(compute_set, Scalar, {"x": x[tile]}, tile=tile)
        if tile != 1:
            graph.set_perf_estimate(vertex, 100 + tile, 10 + tile)
    table = vertex.table.freeze()
    assert table.estimate_cycles.tolist() == [100, -1, 102]
    assert table.estimate_flops.tolist() == [10, 0, 12]


# What is wrong with the list field of a vertex, and the error it must give when frozen.
BROKEN_LISTS = [
    (2, {0: 0}, "has size 2 but 1 connected sub-vectors"),
    (2, {1: 0}, "has a gap between its sub-vectors"),
    (1, {}, "is not connected"),
]


@pytest.mark.parametrize(("size", "connected", "what"), BROKEN_LISTS)
def test_incomplete_lists_are_errors(size, connected, what):
    """A list whose elements do not all have a tensor is refused with its vertex and line."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [2, 4])
    vertex = graph.add_vertex(graph.add_compute_set("cs"), Rows, tile=0)
    graph.set_field_size(vertex["rows"], size)
    for sub, row in connected.items():
        graph.connect(vertex["rows"][sub], x[row])
    with pytest.raises(GraphConnectionError) as caught:
        vertex.table.freeze()
    assert f"field Rows.rows of vertex 0 in compute set 'cs' {what}." in str(caught.value)
    assert "test_table.py" in str(caught.value)


def test_list_elements_need_a_size_first():
    """Connecting an element of a list without a size says to set one."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [4])
    vertex = graph.add_vertex(graph.add_compute_set(), Rows, tile=0)
    with pytest.raises(NoSizeSpecified, match="without a size"):
        graph.connect(vertex["rows"][0], x)
