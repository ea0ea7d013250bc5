"""Every registered operation: right results on random layouts, errors by text, costs that stand."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import (
    DEFAULT_TOLERANCE,
    Call,
    assert_close,
    laid_out,
    run_calls,
    small_graph,
    tensor_type,
)
from tests.sampling import WIDE
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.compiler.report.report import ProgramReport
from tremula.poplibs.registry import Op, Sample, all_ops

OPS = all_ops()
# Two layouts, so that a result that depends on the tile map does not pass.
SEEDS = (0, 1)


def check(op: Op, types, seed: int):
    """Run all samples of some types at once, and compare each with the reference."""
    wanted, calls = [], []
    for type in types:
        random = np.random.default_rng(1000 + seed)
        for number, sample in enumerate(op.samples(type, random)):
            calls.append(Call(op.function, sample.inputs, type, sample.options, op.is_in_place))
            wanted.append((type, number, sample))
    results, report = run_calls(calls, seed)
    for (type, number, sample), got in zip(wanted, results, strict=True):
        where = f"{op.name} of {type}, sample {number}"
        tolerance = op.tolerance.get(type.name, DEFAULT_TOLERANCE.get(type.name, 0.0))
        compare(op, sample, got, tolerance, where)
    return report


def compare(op: Op, sample: Sample, got, tolerance: float, where: str):
    """A result against the reference or, if it is random, by the operation's own check."""
    arrays = [np.array(a) for a in sample.inputs]
    if op.reference is None:
        wrong = op.check(got[0] if len(got) == 1 else got, *arrays, **sample.options)
        assert not wrong, f"{where}: {wrong}"
        return
    expected = op.reference(*arrays, **sample.options)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(got) == len(expected), f"{where}: {len(got)} tensors, expected {len(expected)}"
    for part, right in zip(got, expected, strict=True):
        assert_close(part, right, tolerance, where)


SEVERAL_TYPES = [name for name, op in OPS.items() if len(op.types) > 1]
# Of operations with several types `make test` runs every other one with its first, the rest with
# another: each type comes up several times among all operations.
WITH_FIRST = {name for name in OPS if name not in SEVERAL_TYPES[1::2]}


def further_type(name: str) -> Type:
    """A type of an operation beyond its first, in turn, so that operations differ in it."""
    types, turn = OPS[name].types, SEVERAL_TYPES.index(name) // 2
    return types[1 + turn % (len(types) - 1)]


def of_first_type(number: int, name: str) -> object:
    """`make check` runs every fourth."""
    marks = [pytest.mark.slow] if number % 4 else []
    return pytest.param(name, marks=marks if name in WITH_FIRST else WIDE)


@pytest.mark.parametrize("name", [of_first_type(i, name) for i, name in enumerate(OPS)])
def test_first_type(name):
    """Each operation gives the reference's result for its first type; no cost is a guess."""
    op = OPS[name]
    assert_costs(name, op.types[0], check(op, op.types[:1], SEEDS[0]))


# Operations on floats that only move, choose, convert or make bits.
WITHOUT_FLOPS = {
    "poplin.triangular_mask", "poplin.weights_transpose_chans_flip_xy", "popops.cast",
    "popops.dynamic_slice", "popops.dynamic_update", "popops.encode_one_hot", "popops.fill",
    "popops.gather", "popops.multi_slice", "popops.multi_update", "popops.partial_transpose",
    "popops.regroup_tensor", "popops.select", "popops.sequence_slice", "popops.zero",
    "poprand.bernoulli", "popsparse.dynamic.slice_rows",
}  # fmt: skip


def assert_costs(name: str, type: Type, report: ProgramReport):
    """No cost is a guess and, if the type is a float, flops are what the units can do."""
    for row in report.vertex_types:
        assert row.provenance != "placeholder", row
        assert row.cycles > 0, row
    assert report.total_cycles > 0
    if type in (FLOAT, HALF) and not name.startswith("gcl."):  # those are over replicas
        assert_flops_are_possible(name, report)


def assert_flops_are_possible(name: str, report: ProgramReport):
    """Vertices do no more flops than their unit could in their cycles; only moving has none."""
    executable, _ = report._origin
    tables = [t for one in executable.analysis.costs.compute_sets for t in one.tables]
    for table in tables:
        assert table.peak_cycles <= table.total_cycles, table
    assert (sum(t.n_flops for t in tables) == 0) == (name in WITHOUT_FLOPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=WIDE if n in WITH_FIRST else ()) for n in SEVERAL_TYPES]
)
def test_further_type(name):
    """Each operation gives the reference's result for a further type and another layout.

    The type is taken in turn, so that among all operations every type comes up several times.
    """
    type = further_type(name)
    assert_costs(name, type, check(OPS[name], [type], SEEDS[1]))


def test_tested_types_are_all_types():
    """Every type that any operation takes is among those tested without `make test-wide`."""
    taken = {type for op in OPS.values() for type in op.types}
    others = {further_type(name) for name in OPS if name not in WITH_FIRST}
    assert {OPS[name].types[0] for name in WITH_FIRST} | others == taken


@WIDE
@pytest.mark.parametrize("name", OPS)
def test_all_types(name):
    """Each operation gives the reference's result for every type and another layout."""
    op = OPS[name]
    check(op, op.types, SEEDS[1])


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.errors])
def test_errors(name):
    """Each wrong call raises the error it promises, with a hint, and leaves a usable graph."""
    op = OPS[name]
    for case in op.errors:
        random = np.random.default_rng(0)
        graph = small_graph()
        first = case.sample.inputs[0] if case.sample.inputs else np.zeros(1, np.float32)
        type = as_type(first.dtype)
        tensors = [
            laid_out(graph, tensor_type(a, type), a.shape, random) for a in case.sample.inputs
        ]
        sequence, n_before = tr.Sequence(), sizes(graph)
        with pytest.raises(case.error) as caught:
            op.function(graph, *tensors, sequence=sequence, **case.sample.options)
        assert case.expected in str(caught.value)
        assert "try:" in str(caught.value)
        assert "test_registry.py" in str(caught.value)
        if sizes(graph) != n_before:
            tr.Engine(graph, sequence).load().run()


def sizes(graph):
    return len(graph.state.variables), len(graph.state.compute_sets)


def test_results_repeat():
    """Running a program twice on the same data gives the same bits."""
    op = OPS["popops.add"]
    samples = list(op.samples(tr.FLOAT, np.random.default_rng(5)))
    calls = [Call(op.function, s.inputs, tr.FLOAT, s.options) for s in samples]
    first, second = run_calls(calls, 3)[0], run_calls(calls, 3)[0]
    for (a,), (b,) in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()
