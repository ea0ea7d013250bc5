"""Every operation: on the host against PyTorch, forward and gradient."""

from dataclasses import replace

import numpy as np
import pytest

import popxl
from popxl import ops
from tests.frontends.popxl.runs import compare, run
from tests.frontends.popxl.samples import SAMPLES, TESTED_ELSEWHERE
from tremula.frontends.popxl.ops.public import operation_names, ops_markdown


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_against_pytorch(sample):
    """Results and gradients of a graph with one operation are PyTorch's."""
    compare(sample)


def test_all_operations_are_tested():
    """Each public operation has a sample here, or a test that names it."""
    assert {sample.name for sample in SAMPLES} | set(TESTED_ELSEWHERE) == set(operation_names())


def seeded():
    return popxl.variable(np.array([3, 4_000_000_000], np.uint32))


def test_random_numbers_come_from_seeds():
    """Equal seeds give equal numbers, others differ; means and deviations are right."""
    ir = popxl.Ir()
    with ir.main_graph:
        seed = seeded()
        a, b, c = ops.split_random_seed(seed, 3)
        tensors = [
            ops.random_uniform(a, (4000,), -1.0, 3.0), ops.random_uniform(a, (4000,), -1.0, 3.0),
            ops.random_normal(b, (4000,), 2.0, 0.5), ops.random_normal(c, (4000,)),
        ]  # fmt: skip
    first, again, normal, other = run(ir, tensors)
    assert (first == again).all()
    assert -1.0 <= first.min() < -0.9
    assert 2.9 < first.max() < 3.0
    assert abs(first.mean() - 1.0) < 0.1
    assert abs(normal.mean() - 2.0) < 0.05
    assert abs(normal.std() - 0.5) < 0.03
    assert abs(np.corrcoef(normal, other)[0, 1]) < 0.05


def test_dropout_keeps_its_mask_for_the_gradient():
    """Forward and gradient drop the same elements and scale the others by 1/(1 - p)."""
    ir = popxl.Ir()
    with ir.main_graph:
        seed, x = seeded(), popxl.variable(np.ones((20, 30), np.float32))
        graph = ir.create_graph(lambda t, s: ops.dropout(t, s, 0.25), x, seed)
        info = ops.call_with_info(graph, x, seed)
        grad = popxl.transforms.autodiff(graph, grads_required=[graph.inputs[0]])
        one = popxl.constant(np.full((20, 30), 2.0, np.float32))
        made = ops.call(grad.graph, one, inputs_dict=grad.inputs_dict(info))
        shaped = ops.shaped_dropout(x, seed, (20, 1), 0.5)
    y, dx, rows = run(ir, [info.outputs[0], *made, shaped])
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.06
    np.testing.assert_allclose(dx, 2 * y)
    assert (rows == rows[:, :1]).all()


def test_8_bit_floats():
    """Casts round to the formats' numbers with a scale, and products take them."""
    values = np.array([[0.3, -1.7], [100.0, 0.001]], np.float32)
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(values)
        a = ops.pow2scale_cast_to_fp8(x, 1, popxl.float8_143)
        b = ops.pow2scale_cast_to_fp8(x, 0, popxl.float8_152)
        tensors = [
            ops.pow2scale_cast_from_fp8(a, -1, popxl.float32),
            ops.pow2scale_cast_from_fp8(b, 0, popxl.float32),
            ops.matmul_pow2scaled(a, b, -1),
            a,
        ]
    back, other, product, codes = run(ir, tensors)
    table = popxl.fp8_utils.host_pow2scale_cast_from_fp8
    encode = popxl.fp8_utils.host_pow2scale_cast_to_fp8
    np.testing.assert_array_equal(codes, encode(values, popxl.float8_143, 1))
    np.testing.assert_array_equal(back, table(codes, popxl.float32, -1))
    np.testing.assert_allclose(back, values, rtol=0.08, atol=1e-3)
    np.testing.assert_allclose(other, values, rtol=0.13, atol=1e-4)
    np.testing.assert_allclose(product, (back @ other), rtol=1e-3)
    assert product.dtype == np.float16


def test_integers_divide_downwards_and_unsigned_wrap():
    """`/` of integers is floor division; 32-bit unsigned sums wrap."""
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(np.array([-7, 7], np.int32)) / 2
        b = popxl.variable(np.array([4_294_967_295], np.uint32)) + 2
    quotient, total = run(ir, [a, b])
    assert quotient.tolist() == [-4, 3]
    assert total.tolist() == [1]


def test_gathers_outside_are_zero():
    """With zero_OOR, rows for numbers outside the table are zeros, negative ones included."""
    ir = popxl.Ir()
    with ir.main_graph:
        table = popxl.variable(np.ones((3, 2), np.float32))
        result = ops.gather(table, popxl.constant([-1, 0, 3]), zero_OOR=True)
    (rows,) = run(ir, [result])
    assert rows[:, 0].tolist() == [0, 1, 0]


def test_the_page_is_current(repository):
    """docs/popxl-ops.md is what `make docs` makes."""
    page = (repository / "docs" / "popxl-ops.md").read_text(encoding="utf-8")
    assert page == ops_markdown()


def in_halves(sample):
    """Operations on 16-bit floats equal PyTorch's on these numbers in 32 bits."""
    halves = tuple(a.astype(np.float16) if a.dtype.kind == "f" else a for a in sample.arrays)

    def reference(*operands):
        result = sample.reference(*(t.float() if t.is_floating_point() else t for t in operands))
        several = isinstance(result, list | tuple)
        made = [r.half() if r.is_floating_point() else r for r in (result if several else [result])]
        return made if several else made[0]

    return replace(sample, arrays=halves, reference=reference)


HALVES = [s for s in SAMPLES if any(a.dtype.kind == "f" for a in s.arrays)]
SAMPLED = {"matmul", "layer_norm", "gelu", "gather", "sum"}


@pytest.mark.parametrize(
    "sample",
    [pytest.param(s, marks=[] if s.name in SAMPLED else pytest.mark.wide) for s in HALVES],
    ids=lambda sample: sample.name,
)
def test_halves_against_pytorch(sample):
    """Results and gradients of 16-bit floats are PyTorch's, to their precision."""
    compare(in_halves(sample), tolerance=2e-2)
