"""Convolutions: every split, padding and halo; plans of both passes; wrong parameters."""

from dataclasses import replace

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import small_graph
from tremula import hardware as chips
from tremula.compiler.compile import compile_graph
from tremula.poplibs import poplin
from tremula.poplibs.poplin.product.blocks import spread_together
from tremula.poplibs.poplin.product.build import add_product
from tremula.poplibs.poplin.product.columns import columns_of
from tremula.poplibs.poplin.product.conv_params import (
    FieldDim,
    ProductProblem,
    conv_problem,
    deferred_dilation,
    flattened,
)
from tremula.poplibs.poplin.product.convolution import (
    acts_shape,
    out_shape,
    reference_convolution,
    reference_weight_deltas,
    weights_shape,
)
from tremula.poplibs.poplin.product.methods import METHODS, Work, busiest_worker, work_cycles
from tremula.poplibs.poplin.product.plan import ChannelForm, ProductPlan, Splits
from tremula.poplibs.poplin.product.vertices import reduce_cycles
from tremula.poplibs.poplin.product.worklists import pair
from tremula.poplibs.registry import PoplibsError

PARAMS = poplin.ConvParams(
    type=tr.FLOAT, n_batch=3, field_shape=(9, 11), kernel_shape=(3, 2), n_in_chans=10,
    n_out_chans=20, n_groups=2, stride=(2, 1), padding_lower=(1, 1), padding_upper=(2, 0),
)  # fmt: skip


def arrays_of(params, *shapes, seed: int = 0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(s(params)).astype(params.type.dtype) for s in shapes]


def run(graph, sequence, inputs, result):
    """Write tensors, run, read one."""
    for number, (tensor, _) in enumerate(inputs):
        graph.create_host_write(str(number), tensor)
    graph.create_host_read("out", result)
    engine = tr.Engine(graph, sequence).load()
    for number, (_, array) in enumerate(inputs):
        engine.write_tensor(str(number), array)
    engine.run()
    return engine.read_tensor("out")


FORWARD_SPLITS = (
    Splits(o=(1, 1), k=(1, 1)),
    Splits(b=3, o=(1, 1), k=(1, 1)),
    Splits(o=(3, 2), k=(1, 1)),
    Splits(g=2, o=(1, 4), k=(1, 1), i=2),
    Splits(o=(2, 1), k=(3, 1), c=2),
    Splits(o=(1, 1), k=(3, 2), i=2),
    Splits(b=3, o=(1, 1), k=(1, 1), c_serial=2),
)


def problem_of(is_update: bool) -> ProductProblem:
    """PARAMS in the plain form."""
    fields = (FieldDim(9, 3, 5, 2, 1, 1, 1), FieldDim(11, 2, 11, 1, 1, 1, 1))
    return ProductProblem(is_update, 2, 3, fields, 10, 20, tr.FLOAT, tr.FLOAT)


@pytest.mark.parametrize("splits", FORWARD_SPLITS)
def test_every_split_forwards(splits):
    """However a convolution with padding and strides is cut, halos are found and it is the same."""
    graph, sequence = small_graph(24), tr.Sequence()
    plan = ProductPlan(problem_of(False), graph.target.chip, 24, "AMP", tr.FLOAT, splits, 8, 16)
    acts, weights = arrays_of(PARAMS, acts_shape, weights_shape)
    x = graph.add_variable(tr.FLOAT, acts.shape, "x", mapping="linear")
    w = graph.add_variable(tr.FLOAT, weights.shape, "w", mapping="linear")
    left = x.reshape((3, 2, 10, 9, 11)).dim_shuffle([1, 0, 3, 4, 2])
    right = w.dim_shuffle([0, 3, 4, 2, 1])
    out = add_product(graph, plan, left, right, sequence, "conv")
    got = run(graph, sequence, [(x, acts), (w, weights)], out)
    expected = reference_convolution(acts, weights, PARAMS).reshape(3, 2, 20, 5, 11)
    assert np.allclose(got, expected.transpose(1, 0, 3, 4, 2), atol=1e-4)


@pytest.mark.parametrize("splits", FORWARD_SPLITS)
def test_every_split_of_an_update(splits):
    """However the update of weights is cut, partial sums over batch and field add up the same."""
    graph, sequence = small_graph(24), tr.Sequence()
    plan = ProductPlan(problem_of(True), graph.target.chip, 24, "AMP", tr.FLOAT, splits, 1, 16)
    acts, deltas = arrays_of(PARAMS, acts_shape, out_shape)
    x = graph.add_variable(tr.FLOAT, acts.shape, "x", mapping="linear")
    d = graph.add_variable(tr.FLOAT, deltas.shape, "d", mapping="linear")
    left = x.reshape((3, 2, 10, 9, 11)).dim_shuffle([1, 0, 3, 4, 2])
    right = d.reshape((3, 2, 20, 5, 11)).dim_shuffle([1, 0, 3, 4, 2])
    out = add_product(graph, plan, left, right, sequence, "update")
    got = run(graph, sequence, [(x, acts), (d, deltas)], out)
    expected = reference_weight_deltas(deltas, acts, PARAMS)
    assert np.allclose(got, expected.transpose(0, 3, 4, 2, 1), atol=1e-3)


@pytest.mark.parametrize("splits", FORWARD_SPLITS)
def test_a_product_begins_at_any_tile(splits):
    """All of it moves along: operands, vertices and stages of reductions; its results are equal."""
    acts, weights = arrays_of(PARAMS, acts_shape, weights_shape)
    results, maps = [], []
    for start_tile, goes_down in ((0, False), (17, False), (6, True)):
        graph, sequence = small_graph(24), tr.Sequence()
        plan = ProductPlan(
            problem_of(False), graph.target.chip, 24, "AMP", tr.FLOAT, splits, 8, 16,
            start_tile=start_tile, goes_down=goes_down,
        )  # fmt: skip
        x = graph.add_variable(tr.FLOAT, acts.shape, "x", mapping="linear")
        w = graph.add_variable(tr.FLOAT, weights.shape, "w", mapping="linear")
        left = x.reshape((3, 2, 10, 9, 11)).dim_shuffle([1, 0, 3, 4, 2])
        right = w.dim_shuffle([0, 3, 4, 2, 1])
        out = add_product(graph, plan, left, right, sequence, "conv")
        maps.append(graph.get_tile_mapping(out).tile)
        results.append(run(graph, sequence, [(x, acts), (w, weights)], out))
    assert all(np.array_equal(results[0], result) for result in results)
    assert np.array_equal((maps[0] + 17) % 24, maps[1])
    assert np.array_equal(23 - (maps[0] + 6) % 24, maps[2])


def test_passes_of_a_convolution_that_dithers_begin_together():
    """Weights stay where they are for the gradients of inputs and of weights."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=2, field_shape=(28, 28), kernel_shape=(3, 3), n_in_chans=64,
        n_out_chans=128, stride=(2, 2), padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    back = poplin.input_gradient_params(params)
    plans = [
        poplin.convolution_plan(graph, one, is_update=is_update, enable_conv_dithering=True)
        for one, is_update in ((params, False), (back, False), (params, True))
    ]
    assert len({(plan.start_tile, plan.goes_down) for plan in plans}) == 1
    assert plans[0].start_tile > 0
    assert plans[0].start_tile % 2 == 0, "a pair of tiles shares its bus"
    assert poplin.convolution_plan(graph, params).start_tile == 0


def test_created_operands_are_not_rearranged():
    """Input and weights made for a convolution are used where they are, halos exchanged."""
    for params in (PARAMS, _of_one_tap()):
        graph, sequence = small_graph(), tr.Sequence()
        x, w = poplin.create_input(graph, params), poplin.create_weights(graph, params)
        assert x.shape == acts_shape(params)
        assert w.shape == weights_shape(params)
        y = poplin.convolution(graph, x, w, params, sequence)
        assert {type(step).__name__ for step in sequence.steps} == {"Execute"}
        acts, weights = arrays_of(params, acts_shape, weights_shape)
        got = run(graph, sequence, [(x, acts), (w, weights)], y)
        assert np.allclose(got, reference_convolution(acts, weights, params), atol=1e-4)


def _of_one_tap() -> poplin.ConvParams:
    return poplin.ConvParams(
        type=tr.FLOAT, n_batch=2, field_shape=(6, 5), kernel_shape=(1, 1), n_in_chans=9,
        n_out_chans=17, n_groups=2,
    )  # fmt: skip


def test_methods_that_suit_few_channels():
    """Depthwise convolutions use no matrix unit, which would be idle for the most part."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    depthwise = poplin.ConvParams(
        type=tr.HALF, n_batch=4, field_shape=(56, 56), kernel_shape=(3, 3), n_in_chans=1,
        n_out_chans=1, n_groups=64,
    )  # fmt: skip
    assert poplin.convolution_plan(graph, depthwise).method == "VMAC"
    floats = replace(depthwise, type=tr.FLOAT)  # PopLibs has that vertex for halves alone
    assert poplin.convolution_plan(graph, floats).method != "VMAC"
    dense = poplin.ConvParams(
        type=tr.HALF, n_batch=4, field_shape=(56, 56), kernel_shape=(3, 3), n_in_chans=64,
        n_out_chans=64,
    )  # fmt: skip
    plan = poplin.convolution_plan(graph, dense)
    assert plan.method == "AMP"
    assert plan.splits.n_tiles > 1000
    assert "weight update" in poplin.plan_report(
        poplin.convolution_plan(graph, dense, is_update=True)
    )


@pytest.mark.parametrize(
    ("kernel", "hw", "chans", "batch", "published"),
    [(3, 56, 64, 32, 73.43), (3, 28, 128, 32, 58.13), (3, 14, 256, 32, 52.78)],
)
def test_measured_convolutions(kernel, hw, chans, batch, published):
    """Rates of ResNet's 3x3 convolutions on a GC2, planned as in 2019, are the published ones."""
    graph = tr.Graph(tr.IPUModel("gc2").create_device())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=batch, field_shape=(hw, hw), kernel_shape=(kernel, kernel),
        n_in_chans=chans, n_out_chans=chans, padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    plan = poplin.convolution_plan(graph, params, cycle_backoff_percent=20)
    rate = params.n_flops / plan.cycles * graph.target.chip.clock_hz / 1e12
    assert rate == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize("moved", [(), (0,), (1,), (0, 1)])
def test_kernel_dimensions_as_channels(moved):
    """Moving taps into channels changes what a plan costs, not its result."""
    graph, sequence = small_graph(24), tr.Sequence()
    splits, form = Splits(b=3, o=(2, 1), k=(2, 1)), ChannelForm(moved, 8)
    plan = ProductPlan(
        problem_of(False), graph.target.chip, 24, "AMP", tr.FLOAT, splits, 8, 16, form
    )
    acts, weights = arrays_of(PARAMS, acts_shape, weights_shape)
    x = graph.add_variable(tr.FLOAT, acts.shape, "x", mapping="linear")
    w = graph.add_variable(tr.FLOAT, weights.shape, "w", mapping="linear")
    left = x.reshape((3, 2, 10, 9, 11)).dim_shuffle([1, 0, 3, 4, 2])
    right = w.dim_shuffle([0, 3, 4, 2, 1])
    out = add_product(graph, plan, left, right, sequence, "conv")
    got = run(graph, sequence, [(x, acts), (w, weights)], out)
    wanted = reference_convolution(acts, weights, PARAMS)
    shaped = got.transpose(1, 0, 4, 2, 3).reshape(wanted.shape)
    np.testing.assert_allclose(shaped, wanted, rtol=1e-4, atol=1e-4)
    state = columns_of(plan).state
    # Ten channels with the taps that were moved there, two in each dimension; groups of eight.
    n_channels = 10 * 2 ** len(moved)
    assert state["n_in"].max() == n_channels
    assert state["n_taps"].max() == 4 * 10 // n_channels
    n_padded, n_rows = -(-n_channels // 8) * 8, 3 if 0 in moved else 5
    assert state["n_gathered"][0] == 2 * n_rows * 11 * n_padded


def test_few_channels_take_taps_along():
    """With `expands_dims`, groups of four channels fill more of the matrix unit."""
    graph = tr.Graph(tr.IPUModel("gc2").create_target())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=4, field_shape=(56, 56), kernel_shape=(3, 3), n_in_chans=4,
        n_out_chans=4, n_groups=32, padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    plain, expanded = (
        poplin.convolution_plan(graph, params, expands_dims=expands) for expands in (False, True)
    )
    assert plain.channel_form.moved == ()
    assert expanded.channel_form.moved
    assert "moved into channels" in poplin.plan_report(expanded)
    assert 2 * expanded.costs["partial calculation"] < plain.costs["partial calculation"]
    assert expanded.costs["rearrange inputs"] > 0


def test_weights_lie_in_whole_groups():
    """Tiles that share weights have groups of 16 by 16 channels, not a few elements each."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=22, field_shape=(56, 56), kernel_shape=(1, 1), n_in_chans=256,
        n_out_chans=128,
    )  # fmt: skip
    weights = poplin.create_weights(graph, params, partials_type=tr.HALF)
    mapping = graph.get_tile_mapping(weights)
    n_of_tile = np.bincount(mapping.tile, weights=mapping.end - mapping.begin)
    assert set(n_of_tile[n_of_tile > 0].tolist()) == {256}


def test_weights_are_transposed_where_they_go():
    """A tile transposes what it then has of the weights for a gradient: nothing is sent again."""
    graph, sequence = tr.Graph(tr.IPUModel("bow").create_device()), tr.Sequence()
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=22, field_shape=(56, 56), kernel_shape=(1, 1), n_in_chans=64,
        n_out_chans=64,
    )  # fmt: skip
    weights = poplin.create_weights(graph, params, partials_type=tr.HALF)
    deltas = poplin.create_input(graph, params, partials_type=tr.HALF)
    poplin.convolution(
        graph, deltas, weights, poplin.input_gradient_params(params), sequence,
        transpose_and_flip_weights=True, partials_type=tr.HALF,
    )  # fmt: skip
    executable = compile_graph(graph, sequence)
    (turning,) = [s for s in executable.compute_sets if s.name.endswith("Transpose")]
    (table,) = turning.tables
    exchange = executable.analysis.exchanges.of_compute_set(executable.compute_sets.index(turning))
    assert len(np.unique(table.tile)) == 16
    assert exchange.before is None
    assert exchange.after is None


def test_weight_gradients_lie_in_groups_of_channels():
    """A tile that adds up partial results of a weight update has whole groups of 16 channels."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=22, field_shape=(56, 56), kernel_shape=(1, 1), n_in_chans=64,
        n_out_chans=64,
    )  # fmt: skip
    plan = poplin.convolution_plan(graph, params, is_update=True, partials_type=tr.HALF)
    result = columns_of(plan).result_map
    assert not ((result.end - result.begin) % 16).any()


def test_a_position_of_inputs_lies_on_one_tile():
    """A tile has all channels that a block of inputs has of a position."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=22, field_shape=(28, 28), kernel_shape=(1, 1), n_in_chans=512,
        n_out_chans=128,
    )  # fmt: skip
    plan = poplin.convolution_plan(graph, params, partials_type=tr.HALF)
    left = columns_of(plan).left_map
    n_channels = 512 // plan.splits.i
    assert plan.splits.c > 1
    assert not ((left.end - left.begin) % n_channels).any()


@pytest.mark.parametrize(("n_least", "expected"), [(0, [4, 4, 4, 4, 1]), (6, [8, 9]), (99, [17])])
def test_parts_of_whole_grains(n_least, expected):
    """Fewer users have a part if the parts of all would be smaller than the least."""
    one = np.array([0]), np.array([17]), np.arange(9)[None]
    spread = spread_together(*one, 4, n_least)
    assert (spread.end - spread.begin).tolist() == expected
    assert spread.tile.tolist() == list(range(len(expected)))


def test_blocks_of_the_same_users_lie_side_by_side():
    """Serial parts of weights do not all begin with their first user."""
    users = np.array([[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]])
    spread = spread_together(np.arange(4) * 8, np.full(4, 8), users, 4, 0)
    n_of_tile = np.bincount(spread.tile, weights=spread.end - spread.begin)
    assert n_of_tile.tolist() == [8, 8, 8, 8]
    assert sorted(zip(spread.begin.tolist(), spread.end.tolist(), strict=True)) == [
        (0, 8), (8, 16), (16, 24), (24, 32)
    ]  # fmt: skip


def strided(n_kernel: int) -> poplin.ConvParams:
    """The gradient of the input of a convolution with strides."""
    pad = (n_kernel // 2,) * 2
    return poplin.input_gradient_params(
        poplin.ConvParams(
            type=tr.HALF, n_batch=2, field_shape=(16, 16), kernel_shape=(n_kernel, n_kernel),
            n_in_chans=32, n_out_chans=32, stride=(2, 2), padding_lower=pad, padding_upper=pad,
        )
    )  # fmt: skip


def test_taps_meet_a_part_of_what_dilated_inputs_reach():
    """Of outputs between inputs that are two apart in both dimensions, a tap meets one in four."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=16).create_device())
    plan = poplin.convolution_plan(graph, strided(3))
    state = columns_of(plan).state
    names = ("n_positions", "n_in", "n_out", "n_taps")
    n_multiplied = int(np.prod([state[name].astype(np.int64) for name in names], axis=0).sum())
    exact = 2 * 8 * 8 * 32 * 32 * 9
    assert exact <= n_multiplied < 1.5 * exact
    assert int((state["n_outputs"] * state["n_out"]).sum()) >= 2 * 16 * 16 * 32


def test_single_taps_meet_no_zeros():
    """Without a kernel inputs are dilated after they are multiplied: a plain product."""
    deferred = deferred_dilation(strided(1))
    assert deferred is not None
    assert flattened(conv_problem(deferred, False)).is_product
    assert deferred_dilation(strided(3)) is None
    assert deferred_dilation(PARAMS) is None


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 5, 6, 7, 10, 28])
def test_workers_share_rows_evenly(n_rows):
    """Rows in equal parts, dealt in order: the busiest worker's items and positions, counted."""
    chip, length = chips.chip("gc2"), 12
    parts = next(n for n in range(1, 7) if n_rows * n % chip.n_workers == 0)
    share = n_rows * parts // chip.n_workers
    rows = np.repeat(np.arange(n_rows), parts).reshape(chip.n_workers, share)
    n_items = max(len(set(row.tolist())) for row in rows)
    work = Work(1, n_rows * length, n_rows, 16, 8, 9)
    busiest = busiest_worker(work, chip)
    assert busiest == (n_items, share * length / parts)


def test_columns_of_shares_are_those_of_each_row():
    """The busiest workers of many vertices at once are those of each by itself."""
    chip, random = chips.chip("gc2"), np.random.default_rng(0)
    n_rows, n_positions = random.integers(0, 40, 50), random.integers(1, 999, 50)
    both = busiest_worker(Work(1, n_positions, n_rows, 16, 8, 9), chip)
    each = [
        busiest_worker(Work(1, *sizes, 16, 8, 9), chip)
        for sizes in zip(n_positions.tolist(), n_rows.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(np.array(both).T, each)


def test_a_row_more_than_workers_is_not_a_round_more():
    """Seven rows take a sixth more than six on the matrix unit, not twice as much."""
    chip = chips.chip("gc2")
    six, seven = (
        work_cycles("AMP", Work(1, n * 600, n, 16, 8, 9), chip, tr.HALF, tr.FLOAT) for n in (6, 7)
    )
    assert six < seven < 1.25 * six


@pytest.mark.parametrize(("name", "slots"), [("gc2", 3), ("bow", 2)])
def test_slots_of_each_partial_result(name, slots):
    """Adding up takes three slots for four floats of a partial result on a GC2, two later."""
    chip = chips.chip(name)
    n_vectors = 5
    n_outputs = n_vectors * 2 * chip.vector_width(tr.FLOAT) * chip.n_workers
    eight, nine = (reduce_cycles(n_outputs, n, chip, tr.FLOAT) for n in (8, 9))
    assert nine - eight == chip.n_workers * n_vectors * slots


def test_outer_products_have_no_kernel():
    """PopLibs multiplies one channel by outer products where there is no kernel, and only there."""
    one_tap, taps = (
        poplin.ConvParams(
            type=tr.FLOAT, n_batch=1, field_shape=(8, 8), kernel_shape=(k, k), n_in_chans=1,
            n_out_chans=1, n_groups=4,
        ) for k in (1, 3)
    )  # fmt: skip
    outer = METHODS["OUTER_PRODUCT"]
    chip = chips.chip("gc2")
    problems = [flattened(conv_problem(p, False)) for p in (one_tap, taps)]
    assert [outer.grains(p, chip, tr.FLOAT) is not None for p in problems] == [True, False]


def test_cycles_given_up_for_memory():
    """Plans within a backoff of the fewest cycles; more of it never needs more memory."""
    graph = tr.Graph(tr.IPUModel("gc2").create_target())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=4, field_shape=(28, 28), kernel_shape=(1, 1), n_in_chans=128,
        n_out_chans=512,
    )  # fmt: skip
    fastest, *others = (
        poplin.convolution_plan(graph, params, cycle_backoff_percent=p) for p in (1e-9, 20, 100)
    )
    assert fastest.temp_bytes > others[0].temp_bytes >= others[1].temp_bytes
    assert fastest.cycles < others[0].cycles <= 1.2 * fastest.cycles
    assert others[0].cycles <= others[1].cycles <= 2 * fastest.cycles


def test_pairing_of_outputs_and_taps():
    """Padding, strides and dilation decide which outputs meet a tap, and at which inputs."""
    padded = pair(FieldDim(4, 3, 4, 1, 1, 1, 1), 0, 4, 0, 3)
    assert padded.taps == ((0, 1, 3, 0), (1, 0, 4, 0), (2, 0, 3, 1))
    dilated = pair(FieldDim(3, 1, 5, 1, 1, 2, 0), 0, 5, 0, 1)
    assert (dilated.output_step, dilated.input_step) == (2, 1)
    assert dilated.taps == ((0, 0, 3, 0),)
    nothing = pair(FieldDim(2, 1, 9, 1, 1, 1, 4), 0, 3, 0, 1)
    assert (nothing.taps, nothing.low, nothing.high) == ((), 0, 0)


def test_gradient_parameters():
    """The input's gradient is a convolution back to the input's shape, whatever was cut off."""
    back = poplin.input_gradient_params(PARAMS)
    assert back.output_field_shape == PARAMS.field_shape
    assert (back.n_in_chans, back.n_out_chans) == (20, 10)
    assert back.input_dilation == PARAMS.stride
    strided = poplin.ConvParams(
        type=tr.FLOAT, n_batch=1, field_shape=(10,), kernel_shape=(2,), n_in_chans=1,
        n_out_chans=1, stride=(3,), padding_lower=(4,),
    )  # fmt: skip
    assert poplin.input_gradient_params(strided).output_field_shape == (10,)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kernel_shape": (3,)}, "kernel_shape has 1 entries, expected 2"),
        ({"stride": (0, 1)}, "stride is [0, 1], expected entries of 1 or more"),
        ({"n_groups": 0}, "n_groups is 0, expected 1 or more"),
        ({"type": tr.INT}, "elements of int, expected float, half or quarter"),
        ({"kernel_shape": (8, 3)}, "does not fit the padded field [5, 6]"),
    ],
)
def test_wrong_parameters(changes, expected):
    """Parameters that make no convolution are refused when they are made."""
    good = {
        "type": tr.FLOAT, "n_batch": 1, "field_shape": (5, 6), "kernel_shape": (3, 3),
        "n_in_chans": 1, "n_out_chans": 1,
    }  # fmt: skip
    with pytest.raises(PoplibsError) as caught:
        poplin.ConvParams(**(good | changes))
    assert expected in str(caught.value)
    assert "try:" in str(caught.value)


def test_gradients_of_flipped_convolutions_are_refused():
    """input_gradient_params says which transform it cannot invert."""
    flipped = poplin.ConvParams(
        type=tr.FLOAT, n_batch=1, field_shape=(5,), kernel_shape=(2,), n_in_chans=1,
        n_out_chans=1, flip_kernel=(True,),
    )  # fmt: skip
    with pytest.raises(PoplibsError, match="flip_kernel"):
        poplin.input_gradient_params(flipped)
