"""Matrix products: layouts, plans, memory bounds and cost; results are tested by the registry."""

import warnings
from typing import Any

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import small_graph
from tremula.poplibs import poplin
from tremula.poplibs.poplin.product.build import add_product
from tremula.poplibs.poplin.product.conv_params import matrix_problem
from tremula.poplibs.poplin.product.plan import ProductPlan, Splits, reduction_depths
from tremula.poplibs.registry import PoplibsError
from tremula.runtime.forecast import forecast


def product_of(graph: tr.Graph, sequence: tr.Sequence, a, b, c, values):
    """Run a program and read a product."""
    for name, tensor in (("a", a), ("b", b)):
        graph.create_host_write(name, tensor)
    graph.create_host_read("c", c)
    engine = tr.Engine(graph, sequence).load()
    for name, array in zip("ab", values, strict=True):
        engine.write_tensor(name, array)
    engine.run()
    return engine.read_tensor("c"), engine.report()


def random_matrices(*shapes, seed: int = 0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize(
    "splits",
    [
        Splits(), Splits(o=(3,)), Splits(c=4), Splits(i=4), Splits(g=2), Splits(c=2, c_serial=2),
        Splits(g=2, o=(2,), c=2, i=2), Splits(o=(2,), i=4, c_serial=4), Splits(i=8),
    ],
)  # fmt: skip
def test_every_split(splits):
    """However a product is cut over tiles and time, with odd parts left over, it is the same."""
    graph, sequence = small_graph(16), tr.Sequence()
    problem = matrix_problem(2, 23, 61, 58, tr.FLOAT, tr.FLOAT)
    plan = ProductPlan(problem, graph.target.chip, 16, "AMP", tr.FLOAT, splits, 8, 16)
    a = graph.add_variable(tr.FLOAT, [2, 23, 61], "a", mapping="linear")
    b = graph.add_variable(tr.FLOAT, [2, 61, 58], "b", mapping="linear")
    c = add_product(graph, plan, a.expand([1]), b.expand([1]), sequence, "product")
    values = random_matrices(a.shape, b.shape)
    got, _ = product_of(graph, sequence, a, b, c, values)
    assert np.allclose(got.reshape(2, 23, 58), values[0] @ values[1], atol=1e-4)


def test_reductions_in_stages():
    """Partial results of 20 tiles are added in two stages, of 130 in three."""
    assert reduction_depths(15) == ()
    assert reduction_depths(20) == (4,)
    assert reduction_depths(130) == (26, 5)
    for n in (20, 130):
        graph, sequence = small_graph(n), tr.Sequence()
        problem = matrix_problem(1, 3, n * 8, 5, tr.FLOAT, tr.FLOAT)
        plan = ProductPlan(problem, graph.target.chip, n, "AMP", tr.FLOAT, Splits(i=n), 8, 16)
        a = graph.add_variable(tr.FLOAT, [1, 1, 3, n * 8], "a", mapping="linear")
        b = graph.add_variable(tr.FLOAT, [1, 1, n * 8, 5], "b", mapping="linear")
        c = add_product(graph, plan, a, b, sequence, "product")
        values = random_matrices(a.shape, b.shape)
        got, _ = product_of(graph, sequence, a, b, c, values)
        assert np.allclose(got, values[0] @ values[1], atol=1e-3)
        assert len(sequence.steps) == 2 + 1 + len(reduction_depths(n)) + 1


def test_created_operands_are_not_rearranged():
    """Operands made for a product are multiplied where they are; a copy of one is rearranged."""
    graph = small_graph()
    shapes = [40, 72], [72, 33]
    a = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, *shapes)
    b = poplin.create_mat_mul_input_rhs(graph, "float", *shapes)
    sequence = tr.Sequence()
    c = poplin.mat_mul(graph, a, b, sequence)
    assert [type(step).__name__ for step in sequence.steps] == ["Execute"] * len(sequence.steps)
    values = random_matrices(*shapes)
    got, _ = product_of(graph, sequence, a, b, c, values)
    assert np.allclose(got, values[0] @ values[1], atol=1e-4)
    other = tr.Sequence()
    poplin.mat_mul(graph, graph.clone(a), b, other)
    assert [type(step).__name__ for step in other.steps].count("Copy") == 1


def test_an_output_made_for_it_is_written_directly():
    """A result of create_mat_mul_output needs no copy; one of another layout needs one."""
    graph = small_graph()
    shapes = [16, 32], [32, 48]
    a = poplin.create_mat_mul_input_lhs(graph, tr.HALF, *shapes)
    b = poplin.create_mat_mul_input_rhs(graph, tr.HALF, *shapes)
    out = poplin.create_mat_mul_output(graph, tr.HALF, *shapes)
    linear = graph.add_variable(tr.HALF, [16, 48], "out", mapping="linear")
    counts = []
    for result in (out, linear):
        sequence = tr.Sequence()
        poplin.mat_mul_with_output(graph, a, b, result, sequence)
        counts.append([type(step).__name__ for step in sequence.steps].count("Copy"))
    assert counts == [0, 1]


def test_plans_are_kept():
    """A product is planned once; another memory bound makes another plan."""
    graph = small_graph()
    first = poplin.mat_mul_plan(graph, tr.FLOAT, [64, 64], [64, 64])
    again = poplin.mat_mul_plan(small_graph(), tr.FLOAT, [64, 64], [64, 64])
    assert first is again
    other = poplin.mat_mul_plan(
        graph, tr.FLOAT, [64, 64], [64, 64], available_memory_proportion=0.3
    )
    assert other is not first


def test_less_memory_costs_time():
    """A tighter bound gives plans that need less memory, in serial steps, and take longer."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=64).create_device())
    shapes = [512, 2048], [2048, 1024]
    plans = [
        poplin.mat_mul_plan(graph, tr.FLOAT, *shapes, available_memory_proportion=share)
        for share in (0.6, 0.3, 0.21)
    ]
    for plan, share in zip(plans, (0.6, 0.3, 0.21), strict=True):
        assert plan.temp_bytes <= share * graph.target.chip.n_bytes_per_tile
    assert plans[0].cycles <= plans[1].cycles <= plans[2].cycles
    assert plans[2].splits.c_serial > plans[0].splits.c_serial


def test_little_memory_keeps_the_matrix_unit():
    """Where no power of two of serial steps fits, others are tried before the unit is given up."""
    graph = tr.Graph(tr.IPUModel("gc200").create_target())
    plans = [
        poplin.mat_mul_plan(
            graph, tr.HALF, [1024, 50272], [50272, 768],
            partials_type=tr.HALF, available_memory_proportion=share,
        )
        for share in (0.15, 0.6)
    ]  # fmt: skip
    assert [plan.method for plan in plans] == ["AMP", "AMP"]
    assert plans[0].temp_bytes <= 0.15 * graph.target.chip.n_bytes_per_tile
    assert plans[0].cycles < 1.5 * plans[1].cycles


@pytest.mark.parametrize("share", [0.6, 0.21])
def test_a_tile_holds_the_partial_results_of_one_serial_step(share):
    """What a compiled product needs beside operands and result is what its plan says, or less."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=64).create_device())
    shapes, bound = ([512, 2048], [2048, 1024]), {"available_memory_proportion": share}
    plan = poplin.mat_mul_plan(graph, tr.FLOAT, *shapes, **bound)
    assert plan.splits.c_serial > 1
    assert plan.n_reduced > 1
    a = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, *shapes, **bound)
    b = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, *shapes, **bound)
    sequence = tr.Sequence()
    c = poplin.mat_mul(graph, a, b, sequence, **bound)
    held = sum(graph.get_tile_mapping(t).n_elems_per_tile() for t in (a, b, c))
    report = forecast(tr.compile_graph(graph, sequence))
    temporary = report.bytes_by_category()["Variables"] - 4 * held
    assert 0 < temporary.max() <= plan.temp_bytes


def test_the_bound_is_widened_with_a_warning():
    """If nothing fits, the bound is doubled until something does, and a warning says so."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device())
    shapes = [4000, 128], [128, 16]
    with pytest.warns(UserWarning, match="no plan of a product .* fits in 0.10") as caught:
        plan = poplin.mat_mul_plan(graph, tr.FLOAT, *shapes, available_memory_proportion=0.1)
    assert "test_mat_mul.py" in str(caught[0].message)
    assert not plan.bound_was_met
    assert plan.temp_bytes > plan.memory_bound
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert poplin.mat_mul_plan(graph, tr.FLOAT, [8, 8], [8, 8]).bound_was_met


def test_no_memory_at_all_asks_for_the_least():
    """A proportion of zero means the plan that needs the least memory."""
    graph = small_graph()
    shapes = [64, 256], [256, 64]
    least = poplin.mat_mul_plan(graph, tr.FLOAT, *shapes, available_memory_proportion=0)
    usual = poplin.mat_mul_plan(graph, tr.FLOAT, *shapes)
    assert least.temp_bytes <= usual.temp_bytes


def test_half_partials_are_faster():
    """Products of halfs with half partial sums take fewer cycles than with float ones."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    shapes = [1024, 1024], [1024, 1024]
    of_float = poplin.mat_mul_plan(graph, tr.HALF, *shapes)
    of_half = poplin.mat_mul_plan(graph, tr.HALF, *shapes, partials_type=tr.HALF)
    assert of_half.cycles < 0.8 * of_float.cycles


@pytest.mark.parametrize("chip", ["bow", "gc2"])
def test_the_plan_foresees_the_cost(chip):
    """What the planner expects and what the compiled graph costs differ by a tenth at most."""
    graph = tr.Graph(tr.IPUModel(chip).create_device())
    shapes = [512, 1024], [1024, 512]
    a = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, *shapes)
    b = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, *shapes)
    sequence = tr.Sequence()
    poplin.mat_mul(graph, a, b, sequence)
    analysis: Any = tr.compile_graph(graph, sequence).analysis
    costs = analysis.costs
    result = int((costs.exchange + costs.compute).sum())
    assert result == pytest.approx(poplin.mat_mul_plan(graph, tr.FLOAT, *shapes).cycles, rel=0.1)


def test_measured_products():
    """Rates of dense products on a Bow, m = k = 2048, agree with published ones within 8 %."""
    for n, published in ((128, 39.3), (512, 50.1), (2048, 57.2)):
        graph = tr.Graph(tr.IPUModel("bow").create_device())
        plan = poplin.mat_mul_plan(graph, tr.FLOAT, [n, 2048], [2048, 2048])
        rate = 2 * n * 2048**2 / plan.cycles * graph.target.chip.clock_hz / 1e12
        assert rate == pytest.approx(published, rel=0.08)


def test_the_report_is_readable():
    """A plan's report names the method, the parts of each dimension and every cost."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    plan = poplin.mat_mul_plan(graph, tr.FLOAT, [1024, 1024], [1024, 1024])
    text = poplin.plan_report(plan)
    for words in ("method AMP", "partials float", "input channels", "partial calculation",
                  "exchange inputs", "temporary memory", "of peak"):  # fmt: skip
        assert words in text
    assert str(plan.cycles) in text


def test_wrong_shapes_and_types():
    """Layout functions refuse what a product refuses."""
    graph = small_graph()
    with pytest.raises(PoplibsError, match=r"cannot multiply \[1, 2, 3\] by \[1, 4, 5\]"):
        poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, [2, 3], [4, 5])
    with pytest.raises(PoplibsError, match="expected float, half or quarter"):
        poplin.mat_mul_plan(graph, tr.INT, [2, 3], [3, 4])
    shapes = [2, 3], [3, 4], [2, 2]
    a, b, out = (graph.add_variable(tr.FLOAT, s, "x", mapping=0) for s in shapes)
    with pytest.raises(PoplibsError, match=r"a result of shape \[1, 2, 2\], expected \[1, 2, 4\]"):
        poplin.mat_mul_with_output(graph, a, b, out, tr.Sequence())


def test_a_transposed_left_operand_is_read_by_columns():
    """The gradient of weights, x transposed times y, moves whole rows of x, not elements."""
    graph, sequence = small_graph(), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [40, 64], "x", mapping="linear")
    y = graph.add_variable(tr.FLOAT, [40, 48], "y", mapping="linear")
    out = poplin.mat_mul(graph, x.transpose(), y, sequence)
    values = random_matrices(x.shape, y.shape)
    got, _ = product_of(graph, sequence, x, y, out, values)
    assert np.allclose(got, values[0].T @ values[1], atol=1e-4)
    copied = [step.source_of_data for step in sequence.steps if isinstance(step, tr.Copy)]
    assert all(isinstance(t, tr.Tensor) and len(t.runs().start) <= 40 for t in copied)


def test_an_operand_in_blocks_of_its_inner_dimension_is_not_turned():
    """Its pieces show rows first, but columns follow each other in memory, as products want."""
    graph, sequence = small_graph(), tr.Sequence()
    a = graph.add_variable(tr.FLOAT, [24, 64], "a", mapping="linear")
    stored = graph.add_variable(tr.FLOAT, [6, 64, 8], "stored", mapping="linear")
    b = tr.concat([stored[i].transpose() for i in range(6)]).transpose()  # [64, 48]
    out = poplin.mat_mul(graph, a, b, sequence)
    values = random_matrices(a.shape, b.shape)
    got, report = product_of(graph, sequence, a, b, out, values)
    assert np.allclose(got, values[0] @ values[1], atol=1e-4)
    assert not any("Transpose" in row.codelet for row in report.vertex_types)


def test_a_transposed_right_operand_is_turned_on_the_tiles():
    """Rows of a transposed matrix move as they are, and every tile transposes what it got."""
    graph, sequence = small_graph(), tr.Sequence()
    a = graph.add_variable(tr.FLOAT, [24, 64], "a", mapping="linear")
    b = graph.add_variable(tr.FLOAT, [50, 64], "b", mapping="linear")
    out = poplin.mat_mul(graph, a, b.transpose(), sequence)
    values = random_matrices(a.shape, b.shape)
    got, report = product_of(graph, sequence, a, b, out, values)
    assert np.allclose(got, values[0] @ values[1].T, atol=1e-4)
    assert any("Transpose" in row.codelet for row in report.vertex_types)


@pytest.mark.parametrize("takes_columns", [None, False, True])
def test_positions_are_rows_or_columns(takes_columns):
    """A product is the same whether rows or columns are positions, with operands laid out so."""
    graph, sequence = small_graph(16), tr.Sequence()
    values = random_matrices((3, 40), (40, 50))
    shapes = [value.shape for value in values]
    options: Any = {"columns_are_positions": takes_columns}
    a = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, *shapes, **options)
    b = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, *shapes, **options)
    c = poplin.create_mat_mul_output(graph, tr.FLOAT, *shapes, **options)
    poplin.mat_mul_with_output(graph, a, b, c, sequence, **options)
    result, _ = product_of(graph, sequence, a, b, c, values)
    assert np.allclose(result, values[0] @ values[1], atol=1e-4)


def test_few_rows_by_a_wide_matrix_take_columns():
    """Columns keep the workers busy where there are few rows; of many rows they are positions."""
    graph = tr.Graph(tr.IPUModel("gc200").create_target())
    few, many = ([1, 1600], [1600, 4800]), ([512, 1600], [1600, 4800])

    def field_of(shapes):
        return poplin.mat_mul_plan(graph, tr.HALF, *shapes).problem.fields[0].n_in

    assert (field_of(few), field_of(many)) == (4800, 512)
    rows = poplin.mat_mul_plan(graph, tr.HALF, *few, columns_are_positions=False)
    assert poplin.mat_mul_plan(graph, tr.HALF, *few).cycles < 0.5 * rows.cycles


def test_products_of_few_rows_that_follow_each_other_leave_weights_in_place():
    """The result of one that took columns is stored by columns, and the next one takes them too."""
    graph, sequence = tr.Graph(tr.IPUModel("gc200").create_target()), tr.Sequence()
    up, down = ([8, 1600], [1600, 6400]), ([8, 6400], [6400, 1600])
    x = graph.add_variable(tr.HALF, up[0], "x", mapping="linear")
    weights = [poplin.create_mat_mul_input_rhs(graph, tr.HALF, *shapes) for shapes in (up, down)]
    inner = poplin.mat_mul(graph, x, weights[0], sequence)
    other = tr.Sequence()
    poplin.mat_mul(graph, inner, weights[1], other)
    copied = [step.source_of_data.n_elems for step in other.steps if isinstance(step, tr.Copy)]
    assert max(copied, default=0) < weights[1].n_elems
    assert inner.strides[0] == 1


def test_values_of_a_few_rows_are_transposed_for_the_matrix_unit():
    """A weighted sum of rows has its channels one below the other: tiles transpose them first."""
    graph, sequence = small_graph(64), tr.Sequence()
    a = graph.add_variable(tr.FLOAT, [1, 64], "a", mapping="linear")
    b = graph.add_variable(tr.FLOAT, [64, 96], "b", mapping="linear")
    out = poplin.mat_mul(graph, a, b, sequence, columns_are_positions=True)
    values = random_matrices(a.shape, b.shape)
    result, report = product_of(graph, sequence, a, b, out, values)
    assert np.allclose(result, values[0] @ values[1], atol=1e-4)
    assert any("Transpose" in row.codelet for row in report.vertex_types)
