"""Slicing beyond the registry's samples: plans, layouts, groups, serial rounds, errors, costs."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import tremula as tr
from tremula.hardware import chip
from tremula.poplibs import popops
from tremula.poplibs.popops.slicing.codelets import divide_slots
from tremula.poplibs.popops.slicing.costs import hit_slots, multi_slice_cycles
from tremula.poplibs.popops.slicing.dynamic_slice import dynamic_slice_with_output
from tremula.poplibs.popops.slicing.multi_slice import grouped_multi_slice
from tremula.poplibs.popops.slicing.row_blocks import (
    BlockCuts,
    add_blocked_matrix,
    even_cuts,
    in_blocks,
)
from tremula.poplibs.registry import PoplibsError

N_TILES = 12
RANDOM = np.random.default_rng(7)

# rows, columns, lookups: of the table and in each split; serial rounds; groups
SPLITS = (
    {"sliced_dim_split": 1, "unsliced_dim_split": 3, "lookup_split": 4},
    {"sliced_dim_split": 3, "unsliced_dim_split": 2, "lookup_split": 2},
    {"sliced_dim_split": 6, "unsliced_dim_split": 1, "lookup_split": 1},
    {"sliced_dim_split": 2, "unsliced_dim_split": 2, "lookup_split": 3, "lookup_serial_split": 3},
)
SLICE, UPDATE = {"used_for_update": False}, {"used_for_slice": False}


def small_graph():
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device())


def run(graph, sequence, written, read, options=None):
    """Write arrays to tensors, run, and read a tensor."""
    for name, (tensor, _) in written.items():
        graph.create_host_write(name, tensor)
    graph.create_host_read("result", read)
    engine = tr.Engine(graph, sequence, options or {"debug.strict": True}).load()
    for name, (_, array) in written.items():
        engine.write_tensor(name, array)
    engine.run()
    return engine.read_tensor("result").reshape(read.shape)


def numbers(*shape):
    return RANDOM.integers(1, 4, shape).astype(np.float32)


def rows_of(n_rows, *shape):
    return RANDOM.integers(0, n_rows, shape).astype(np.uint32)


@pytest.mark.slow
@pytest.mark.parametrize("splits", SPLITS)
def test_planned_slices(splits):
    """A multi-slice gives the same rows however its plan splits it, of 8, 16 and 32 bits."""
    for type in (tr.FLOAT, tr.HALF):
        graph, sequence = small_graph(), tr.Sequence()
        plan = replace(popops.plan_embedding(graph, type, 31, 7, 50, SLICE), **splits)
        table = popops.create_sliceable_tensor(graph, type, [31, 7], plan=plan)
        indices = popops.create_indices_tensor(graph, 50)
        out = popops.multi_slice(graph, table, indices, sequence, plan=plan)
        values, rows = numbers(31, 7).astype(type.dtype), rows_of(31, 50, 1)
        written = {"table": (table, values), "indices": (indices, rows)}
        assert (run(graph, sequence, written, out) == values[rows]).all()


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("operation", ["add", "max", "mul"])
def test_planned_updates(splits, operation):
    """A multi-update gives the same table however its plan splits it."""
    graph, sequence = small_graph(), tr.Sequence()
    options = {**UPDATE, "operation_for_update": operation}
    plan = replace(popops.plan_embedding(graph, "float", 31, 7, 20, options), **splits)
    table = popops.create_sliceable_tensor(graph, "float", [31, 7], plan=plan)
    updates = popops.create_slice_tensor(graph, "float", [31, 7], [0], [1], 20, plan=plan)
    indices = popops.create_indices_tensor(graph, 20)
    update = getattr(popops, f"multi_update_{operation}")
    more = {"scale": 2.0} if operation == "add" else {}
    update(graph, table, updates, indices, sequence, plan=plan, **more)
    values, new, rows = numbers(31, 7), numbers(20, 1, 7), rows_of(31, 20)
    expected = values.copy()
    ufunc = {"add": np.add, "max": np.maximum, "mul": np.multiply}[operation]
    ufunc.at(expected, rows, new[:, 0] * np.float32(2 if more else 1))
    written = {"table": (table, values), "updates": (updates, new), "indices": (indices, rows)}
    assert np.allclose(run(graph, sequence, written, table), expected)


@pytest.mark.parametrize("operation", ["add", "max", "mul"])
def test_many_partial_tables_meet_in_stages(operation):
    """With lookups on 40 tiles side by side, partial tables are joined in stages, and rightly."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=64).create_device())
    sequence, options = tr.Sequence(), {**UPDATE, "operation_for_update": operation}
    plan = popops.plan_embedding(graph, "float", 11, 8, 120, options)
    plan = replace(plan, sliced_dim_split=1, unsliced_dim_split=1, lookup_split=40)
    table = popops.create_sliceable_tensor(graph, "float", [11, 8], plan=plan)
    updates = popops.create_slice_tensor(graph, "float", [11, 8], [0], [1], 120, plan=plan)
    indices = popops.create_indices_tensor(graph, 120)
    update = getattr(popops, f"multi_update_{operation}")
    update(graph, table, updates, indices, sequence, plan=plan)
    values, rows = numbers(11, 8), rows_of(11, 120)
    new = numbers(120, 1, 8) / np.abs(numbers(120, 1, 8)).max() + 1.5
    expected = values.copy()
    {"add": np.add, "max": np.maximum, "mul": np.multiply}[operation].at(expected, rows, new[:, 0])
    written = {"table": (table, values), "updates": (updates, new), "indices": (indices, rows)}
    assert np.allclose(run(graph, sequence, written, table), expected, rtol=1e-4)
    names = tr.Engine(graph, sequence).report().steps.name
    assert sum("joinPartials" in name for name in names) > 1


def cycles_of_split_update(n_rows):
    """Compute cycles of the update step of a table whose 24 lookups lie on 12 tiles."""
    graph, sequence = small_graph(), tr.Sequence()
    plan = popops.plan_embedding(graph, "float", n_rows, 8, 24, UPDATE)
    plan = replace(plan, sliced_dim_split=1, unsliced_dim_split=1, lookup_split=12)
    table = popops.create_sliceable_tensor(graph, "float", [n_rows, 8], plan=plan)
    updates = popops.create_slice_tensor(graph, "float", [n_rows, 8], [0], [1], 24, plan=plan)
    indices = popops.create_indices_tensor(graph, 24)
    popops.multi_update_add(graph, table, updates, indices, sequence, "update", plan=plan)
    steps = tr.Engine(graph, sequence).report().steps
    return int(steps.compute[list(steps.name).index("update")].max())


def test_one_worker_fills_a_partial_table():
    """Zeros of a partial table are a memset: a slot of one of six workers for each 64 bits."""
    further_words = (1200 - 240) * 8 // 2
    assert cycles_of_split_update(1200) - cycles_of_split_update(240) == 6 * further_words


def test_plan_for_any_layout():
    """A planned slice and update of a table and updates in foreign layouts are right, too."""
    graph, sequence = small_graph(), tr.Sequence()
    plan = popops.plan_embedding(graph, "float", 20, 6, 40)
    plan = replace(plan, sliced_dim_split=4, unsliced_dim_split=3, lookup_split=1)
    table = graph.add_variable("float", [20, 6], "table", mapping="linear")
    updates = graph.add_variable("float", [40, 1, 6], "updates", mapping=3)
    indices = graph.add_variable("int", [40], "indices", mapping=5)
    popops.multi_update_add(graph, table, updates, indices, sequence, plan=plan)
    out = popops.multi_slice(graph, table, indices, sequence, plan=plan)
    values, new, rows = numbers(20, 6), numbers(40, 1, 6), rows_of(20, 40).astype(np.int32)
    expected = values.copy()
    np.add.at(expected, rows, new[:, 0])
    written = {"table": (table, values), "updates": (updates, new), "indices": (indices, rows)}
    assert np.allclose(run(graph, sequence, written, out)[:, 0], expected[rows])


def test_half_updates_summed_in_float():
    """With partial_type FLOAT, halves are summed without rounding in between."""
    graph, sequence = small_graph(), tr.Sequence()
    plan = popops.plan_embedding(graph, "half", 3, 4, 50, {**UPDATE, "partial_type": "float"})
    table = popops.create_sliceable_tensor(graph, "half", [3, 4], plan=plan)
    updates = popops.create_slice_tensor(graph, "half", [3, 4], [0], [1], 50, plan=plan)
    indices = popops.create_indices_tensor(graph, 50)
    popops.multi_update_add(graph, table, updates, indices, sequence, plan=plan, scale=1.0)
    values = np.full((3, 4), 1024, np.float16)
    new = np.full((50, 1, 4), 0.25, np.float16)  # lost one by one, but not together
    rows = np.zeros((50, 1), np.uint32)
    written = {"table": (table, values), "updates": (updates, new), "indices": (indices, rows)}
    got = run(graph, sequence, written, table)
    assert (got[0] == np.float16(1024 + 50 * 0.25)).all()
    assert (got[1:] == 1024).all()


def test_groups():
    """Grouped slices and updates keep each group to its own table."""
    graph, sequence = small_graph(), tr.Sequence()
    plan = popops.plan_embedding(graph, "float", 9, 6, 11, n_groups=3)
    table = graph.add_variable("float", [3, 9, 6], "table", mapping="linear")
    updates = graph.add_variable("float", [3, 11, 1, 6], "updates", mapping="linear")
    indices = popops.create_indices_tensor(graph, 11, n_groups=3)
    popops.grouped_multi_update_add(graph, table, updates, indices, sequence, plan=plan)
    out = grouped_multi_slice(graph, table, indices, sequence, plan=plan)
    values, new, rows = numbers(3, 9, 6), numbers(3, 11, 1, 6), rows_of(9, 3, 11)
    expected = values.copy()
    for group in range(3):
        np.add.at(expected[group], rows[group], new[group, :, 0])
    wanted = np.stack([expected[g][rows[g]] for g in range(3)])
    written = {"table": (table, values), "updates": (updates, new), "indices": (indices, rows)}
    assert np.allclose(run(graph, sequence, written, out)[:, :, 0], wanted)


def test_blocks_and_views():
    """A blocked matrix reads and writes as a matrix, whole, in part and in other shapes."""
    graph = small_graph()
    cuts = BlockCuts(even_cuts(10, 3), even_cuts(7, 3))
    matrix = add_blocked_matrix(graph, tr.FLOAT, cuts, "blocked")
    plain = np.argsort(matrix.addresses().ravel())  # element of the matrix at each place in memory
    flat = in_blocks(matrix, cuts)
    assert flat.is_contiguous
    for view in (matrix[3:8, 2:6], matrix.reshape([70])[5:60], matrix.transpose()[1:, ::2]):
        numbered = np.empty(70, np.int64)
        numbered[plain] = np.arange(70)
        whole = numbered.reshape(10, 7)
        part = {(5, 4): whole[3:8, 2:6], (55,): whole.ravel()[5:60], (6, 5): whole.T[1:, ::2]}
        assert ((view.addresses() - flat.offset) == part[view.shape]).all()
    foreign = graph.add_variable("float", [10, 7], "foreign", mapping=0)
    assert in_blocks(foreign, cuts).n_elems == 70


def test_planned_table_needs_no_exchange():
    """A table made by the plan, without a lookup split, is looked up where it is."""
    exchange = []
    for is_planned in (True, False):
        graph, sequence = small_graph(), tr.Sequence()
        plan = popops.plan_embedding(graph, "float", 80, 240, 5, SLICE)
        plan = replace(plan, sliced_dim_split=1, unsliced_dim_split=12, lookup_split=1)
        table = graph.add_variable("float", [80, 240], "table", mapping="linear")
        if is_planned:
            table = popops.create_sliceable_tensor(graph, "float", [80, 240], plan=plan)
        indices = graph.add_variable("unsigned int", [5], "indices", mapping=0)
        popops.multi_slice(graph, table, indices, sequence, plan=plan)
        steps = tr.Engine(graph, sequence).report().steps
        exchange.append(int(steps.exchange[steps.name.index("multiSlice"), 0]))
    assert exchange[0] < 100 < 1000 < exchange[1]


@pytest.mark.parametrize(
    ("sizes", "splits"),
    [
        # What PopLibs' planner chooses on a Bow, as measured cycles of these gathers show: one
        # stage up to 128 rows and for many lookups, two stages in between.
        ((128, 16, 32), (1, 8, 6)),
        ((256, 16, 32), (16, 8, 6)),
        ((256, 16, 2048), (1, 8, 171)),
        ((4096, 64, 4096), (5, 16, 18)),
        ((4096, 512, 8192), (1, 128, 11)),
    ],
)
def test_chosen_splits(sizes, splits):
    """The planner splits a gather on a whole Bow as PopLibs' does."""
    plan = popops.plan_embedding(tr.IPUModel("bow").create_target(), "float", *sizes, SLICE)
    got = (plan.sliced_dim_split, plan.unsliced_dim_split, plan.lookup_split)
    assert got == splits
    assert plan.cycles == sum(cycles for _, cycles in plan.cost_terms)


def test_least_row_bytes():
    """A table that is rearranged has rows of blocks of the bytes asked for, at some cycles."""
    target = tr.IPUModel("bow").create_target()
    sizes = (50257, 256, 128)
    narrow = popops.plan_embedding(target, "float", *sizes)
    wide = popops.plan_embedding(target, "float", *sizes, {"least_row_bytes": 128})
    assert narrow.unsliced_dim_split > 8 >= wide.unsliced_dim_split
    assert narrow.cycles < wide.cycles
    whole = popops.plan_embedding(target, "float", 40, 8, 6, {"least_row_bytes": 128})
    assert whole.unsliced_dim_split == 1, "shorter rows are not cut"


def test_memory_bound():
    """Less memory means a plan with less temporary memory; too little is said."""
    target = tr.IPUModel("bow").create_target()
    sizes = (4096, 512, 16384)
    free = popops.plan_embedding(target, "float", *sizes, SLICE)
    bound = popops.plan_embedding(
        target, "float", *sizes, {**SLICE, "available_memory_proportion": 0.05}
    )
    assert bound.n_temporary_bytes <= 0.05 * target.chip.n_bytes_per_tile < free.n_temporary_bytes
    assert bound.cycles > free.cycles
    with pytest.warns(UserWarning, match="fits available_memory_proportion 1e-06"):
        popops.plan_embedding(
            target, "float", *sizes, {**SLICE, "available_memory_proportion": 1e-6}
        )


def test_serial_rounds_are_planned():
    """Lookups whose results do not fit at once are planned in rounds."""
    target = tr.IPUModel("bow").create_target()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = popops.plan_embedding(target, "float", 100_000, 128, 2**20, SLICE)
    assert plan.lookup_serial_split > 1
    assert str(plan).startswith("rows")


def test_sorted_updates_cost_less():
    """A worker that can search sorted indices need not look at all of them."""
    target = tr.IPUModel("bow").create_target()
    sizes = (10_000, 64, 5000)
    plain, ordered = (
        popops.plan_embedding(target, "float", *sizes, {**UPDATE, "indices_are_sorted": is_sorted})
        for is_sorted in (False, True)
    )
    assert ordered.cycles < plain.cycles


def test_validated_indices():
    """An index out of range stops the program if it is asked for, and gives zeros if not."""
    graph, sequence = small_graph(), tr.Sequence()
    table = graph.add_variable("float", [4, 3], "table", mapping=1)
    indices = graph.add_variable("unsigned int", [40], "indices", mapping="linear")
    out = popops.multi_slice(graph, table, indices, sequence, "look", validate_indices=True)
    rows = np.zeros(40, np.uint32)
    written = {"table": (table, numbers(4, 3)), "indices": (indices, rows)}
    run(graph, sequence, written, out)
    rows[33] = 4
    graph, sequence = small_graph(), tr.Sequence()
    table = graph.add_variable("float", [4, 3], "table", mapping=1)
    indices = graph.add_variable("unsigned int", [40], "indices", mapping="linear")
    out = popops.multi_slice(graph, table, indices, sequence, "look", validate_indices=True)
    written = {"table": (table, numbers(4, 3)), "indices": (indices, rows)}
    with pytest.raises(tr.errors.ApplicationRuntimeError, match="expected 0 to 3"):
        run(graph, sequence, written, out)


def test_created_tensors():
    """Tensors to slice have the shapes asked for, and each slice lies on many tiles."""
    graph = small_graph()
    table = popops.create_sliceable_tensor(graph, "float", [5, 48, 3], [0, 2], [1, 1])
    assert table.shape == (5, 48, 3)
    tiles = graph.get_tile_mapping(table[2, :, 1]).tile
    assert len(np.unique(tiles)) == N_TILES
    assert (graph.get_tile_mapping(table[4, :, 0]).tile == tiles).all()
    source = popops.create_gather_input(graph, "half", [9, 40], [1, 40], [0])
    assert source.shape == (9, 40)
    slices = popops.create_slice_tensor(graph, "float", [9, 40], [0], [2], 6)
    assert slices.shape == (6, 2, 40)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"used_for_slise": True}, "did you mean 'used_for_slice'"),
        ({"operation_for_update": "ad"}, "did you mean 'add'"),
        ({"used_for_slice": False, "used_for_update": False}, "both options are off"),
        ({"partial_type": "half"}, "partial_type half does not fit data of float"),
    ],
)
def test_plan_option_errors(options, text):
    """Options that make no sense are refused with a hint."""
    with pytest.raises(PoplibsError, match=text):
        popops.plan_embedding(small_graph(), "float", 8, 8, 8, options)


def test_plan_misuse():
    """A plan for another table, operation or emptiness is refused by text."""
    graph, sequence = small_graph(), tr.Sequence()
    with pytest.raises(PoplibsError, match="n_lookups of 1 or more, got 0"):
        popops.plan_embedding(graph, "float", 8, 8, 0)
    plan = popops.plan_embedding(graph, "float", 8, 8, 20, UPDATE)
    table = graph.add_variable("float", [8, 6], "table", mapping=0)
    indices = popops.create_indices_tensor(graph, 20)
    with pytest.raises(PoplibsError, match=r"the plan is for 1 table of 8 rows of 8"):
        popops.multi_slice(graph, table, indices, sequence, plan=plan)
    table = graph.add_variable("float", [8, 8], "table", mapping=0)
    updates = graph.add_variable("float", [20, 1, 8], "updates", mapping=0)
    split = replace(plan, lookup_split=2)
    with pytest.raises(PoplibsError, match="operation_for_update='max'"):
        popops.multi_update_max(graph, table, updates, indices, sequence, plan=split)
    wide = graph.add_variable("int", [], "scale", mapping=0)
    with pytest.raises(PoplibsError, match=r"the scale is int .*, expected a scalar of float"):
        popops.multi_update_add(graph, table, updates, indices, sequence, scale=wide)


def test_quarter_is_refused():
    """8-bit floats are refused with the way to slice their bytes."""
    graph, sequence = small_graph(), tr.Sequence()
    metadata = graph.add_variable("quarter_metadata", [], "metadata", mapping=0)
    table = graph.add_variable("quarter", [4, 4], "table", mapping=0, metadata=metadata)
    indices = graph.add_variable("unsigned int", [2], "indices", mapping=0)
    with pytest.raises(PoplibsError, match="reinterpret"):
        popops.multi_slice(graph, table, indices, sequence)


@pytest.mark.parametrize("wanted", [(3, 0, 9, 10, 7, 3, 4000000000, 1, 2), (7,), (10,)])
@pytest.mark.parametrize("width", [4, 5, 13])
def test_a_whole_table_on_a_tile_gives_its_rows(width: int, wanted: tuple[int, ...]) -> None:
    """Short rows are copied without a loop, others with one; an index beyond gives zeros.

    Workers share the columns of a single row.
    """
    from tremula.poplibs.popops.slicing.codelets import multi_slice_codelet

    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=1).create_device())
    table = graph.add_variable(tr.UNSIGNED_INT, [10, width], "table", mapping=0)
    n = len(wanted)
    indices = graph.add_variable(tr.UNSIGNED_INT, [n], "indices", mapping=0)
    out = graph.add_variable(tr.UNSIGNED_INT, [n, width], "out", mapping=0)
    rows = np.arange(10 * width).reshape(10, width)
    graph.set_initial_value(table, rows)
    graph.set_initial_value(indices, list(wanted))
    graph.create_host_read("out", out)
    look_up = graph.add_compute_set("look up")
    fields = {
        "indices": indices, "table": table.flatten(), "out": out.flatten(),
        "first_row": 0, "n_columns": width, "n_entries": 10,
    }  # fmt: skip
    graph.add_vertex(look_up, multi_slice_codelet(tr.UNSIGNED_INT), fields, tile=0)
    engine = tr.Engine(graph, tr.Execute(look_up)).load()
    engine.run()
    expected = np.array([rows[i] if i < 10 else np.zeros(width) for i in wanted])
    assert np.array_equal(engine.read_tensor("out"), expected)


@pytest.mark.parametrize("dims", [(), (0,), (0, 2)])
def test_slices_into_a_tensor(dims):
    """A dynamic slice fills a tensor that exists, however that lies; its shape is checked."""
    graph, sequence = small_graph(), tr.Sequence()
    table = graph.add_variable(tr.FLOAT, [4, 3, 5], mapping="linear")
    sizes = tuple(2 for _ in dims)
    output = graph.add_variable(
        tr.FLOAT, [2 if d in dims else n for d, n in enumerate((4, 3, 5))], mapping=3
    )
    offset = graph.add_variable(tr.UNSIGNED_INT, [len(dims)], mapping=0)
    dynamic_slice_with_output(graph, output, table, offset, sequence, dims=dims, sizes=sizes)
    values, first = numbers(4, 3, 5), np.array([3, 1][: len(dims)], np.uint32)
    written = {"table": (table, values)} | ({"offset": (offset, first)} if dims else {})
    expected = values
    for dim, start in zip(dims, first, strict=True):
        expected = np.take(expected, np.arange(start, start + 2) % values.shape[dim], dim)
    np.testing.assert_array_equal(run(graph, sequence, written, output), expected)
    with pytest.raises(PoplibsError, match=r"got an output of float \[4, 3\], expected float \["):
        dynamic_slice_with_output(
            graph, table[:, :, 0], table, offset, sequence, dims=dims, sizes=sizes
        )


def test_time_of_a_division():
    """An index is divided bit by bit: the mean over all indices, counted one by one."""
    for n_entries, divisor in ((46, 7), (4096, 90), (1000, 999), (5, 5), (1, 3)):
        bits = [index.bit_length() for index in range(1, n_entries)]
        n_turns = sum(max(0, n - divisor.bit_length() + 1) for n in bits) / n_entries
        slots = divide_slots(np.array([n_entries]), np.array([divisor]))
        assert slots[0] == round(20 + 12 * n_turns)


def test_short_rows_are_summed_whole():
    """Sums into rows of 2 or 4 floats, or 4 halves, have PopLibs' short loops; maxima do not."""
    bow = chip("bow")
    columns = np.array([2, 4, 6, 8])
    assert hit_slots(columns, 4, "add", bow).tolist() == [8, 16, 26, 32]
    assert hit_slots(columns, 4, "max", bow).tolist() == [14, 20, 26, 32]
    assert hit_slots(columns, 2, "add", bow).tolist() == [11, 9, 17, 20]


def test_workers_share_a_single_row():
    """A lookup alone takes each worker its part of the columns, in whole atomic stores."""
    bow, slots = chip("bow"), 30 + 19
    floats = multi_slice_cycles(np.array([1, 2, 7]), np.array([64, 64, 64]), 4, 1.0, bow)
    assert floats.tolist() == [6 * (slots + 2 * 6), 6 * (slots + 64), 6 * (30 + 2 * (19 + 64))]
    halves = multi_slice_cycles(np.array([1, 1, 3]), np.array([26, 25, 26]), 2, 1.0, bow)
    assert halves.tolist() == [6 * (slots + 2 * 3), 6 * (slots + 26), 6 * (30 + 2 * (19 + 26))]


def test_adjusted_indices_take_three_steps():
    """Where the second stage looks is computed operation by operation, as in PopLibs.

    The part that has an index is a shift for a power of two rows, else a division.
    """
    times = {}
    for n_entries in (32, 40):
        graph, sequence = small_graph(), tr.Sequence()
        plan = popops.plan_embedding(graph, tr.FLOAT, n_entries, 4, 24, SLICE)
        plan = replace(plan, sliced_dim_split=2, unsliced_dim_split=1, lookup_split=1)
        table = popops.create_sliceable_tensor(graph, tr.FLOAT, [n_entries, 4], plan=plan)
        indices = popops.create_indices_tensor(graph, 24)
        popops.multi_slice(graph, table, indices, sequence, plan=plan)
        steps = tr.Engine(graph, sequence).report().steps
        adjusting = [i for i, name in enumerate(steps.name) if name.endswith("adjustedIndices")]
        assert len(adjusting) == 3
        times[n_entries] = int(steps.compute[adjusting[0]].max())
    assert times[32] < times[40]


def test_last_block_is_spread_like_full_blocks():
    """Tiles collect as many lookups of a block that is not full as of a full one, or the rest."""
    graph = small_graph()
    plan = replace(popops.plan_embedding(graph, tr.FLOAT, 31, 7, 10, SLICE), **SPLITS[1])
    plan = replace(plan, lookup_split=3, unsliced_dim_split=1, sliced_dim_split=2)
    out = popops.create_slice_tensor(graph, tr.FLOAT, [31, 7], [0], [1], 10, plan=plan)
    per_tile = graph.get_tile_mapping(out).n_elems_per_tile()[:6] // 7
    assert per_tile.tolist() == [2, 2, 2, 2, 2, 0]


def test_scalars_and_vectors_of_counts():
    """A tile with few runs of equal counts multiplies by scalars, with many by a vector."""
    from tremula.poplibs.popops.slicing.adjusted_indices import adjusted_indices

    results = {}
    for sizes in ((32, 8, 16, 8), (1, 2) * 11 + (30,) + (1,)):
        graph, sequence = small_graph(), tr.Sequence()
        rows = graph.add_variable(tr.UNSIGNED_INT, [sum(sizes)], "rows")
        graph.map_linearly(rows, 32, 1)
        n_collected = np.array(sizes)
        out = adjusted_indices(graph, rows, n_collected, 5, 100, sequence, "x")
        indices = rows_of(100, sum(sizes))
        position = np.concatenate([np.arange(n) for n in sizes])
        expected = position + indices // 5 * np.repeat(n_collected, n_collected)
        assert (run(graph, sequence, {"rows": (rows, indices)}, out) == expected).all()
        steps = tr.Engine(graph, sequence).report().steps
        results[len(sizes)] = int(steps.compute[steps.name.index("x/adjustedIndices") + 1].max())
    assert results[4] < results[24]
