"""The description of tile kernels: what it contains, and the orders that printers choose."""

from dataclasses import replace

import pytest
import torch
from torch import fx, nn

from tests.ir.host.graph_kernels.layers import (
    LAYERS,
    CutFilter,
    TallGate,
    WithLoss,
    example,
    step_of,
)
from tremula.ir.host.graph_kernels.regions import TF32, find_regions
from tremula.ir.host.graph_kernels.statements import (
    Compute,
    KernelOutput,
    StageSide,
    Statement,
    TileKernel,
    describe,
    in_order,
    outputs_as_soon_as_known,
)


@pytest.fixture(
    scope="module", params=[*LAYERS, CutFilter, TallGate], ids=lambda layer: layer.__name__
)
def described(request: pytest.FixtureRequest) -> list[TileKernel]:
    torch.manual_seed(0)
    model: nn.Module = WithLoss(request.param)
    every_product = replace(TF32, many_edges=1, few_nodes=1 << 20)
    result = [
        describe(region) for region in find_regions(step_of(model, example(300)), every_product)
    ]
    assert result
    return result


def check_order(kernel: TileKernel, statements: list[Statement]) -> None:
    """Every statement once, and after those that compute its operands."""
    known: set[fx.Node] = set()
    computed = {each.value for each in kernel.computes}
    for statement in statements:
        rows = (statement.side,) if isinstance(statement, StageSide) else statement.role.rows
        assert all(row in known or row not in computed for row in rows), statement
        if isinstance(statement, Compute):
            known.add(statement.value)
    values = [each.value for each in statements if isinstance(each, Compute)]
    names = [each.name for each in statements if isinstance(each, KernelOutput)]
    assert set(values) == computed
    assert len(values) == len(kernel.computes)
    assert sorted(names) == sorted(output.name for output in kernel.outputs)


def test_operands_come_first(described: list[TileKernel]):
    """In the order of the description, and in both orders that printers make of it."""
    for kernel in described:
        check_order(kernel, [*kernel.computes, *kernel.outputs])
        check_order(kernel, in_order(kernel))
        for is_async in (False, True):
            scheduled = outputs_as_soon_as_known(
                kernel.computes, kernel.outputs, lambda outer: outer.rows, is_async=is_async
            )
            check_order(kernel, list(scheduled))


def test_results_leave_as_soon_as_they_are_known(described: list[TileKernel]):
    """Nothing is computed between a result's last operand and the result."""
    for kernel in described:
        scheduled = outputs_as_soon_as_known(
            kernel.computes, kernel.outputs, lambda _outer: (), is_async=False
        )
        last: fx.Node | None = None
        for statement in scheduled:
            if isinstance(statement, Compute):
                last = statement.value
            elif isinstance(statement, KernelOutput):
                operands = [x for x in statement.role.rows if kernel.computed(x) is not None]
                assert not operands or last in operands


def test_a_description_covers_its_region(described: list[TileKernel]):
    """Each node of a region is computed, or is a sum that leaves."""
    for kernel in described:
        sums = {output.value for output in kernel.outputs}
        assert {each.value for each in kernel.computes} | sums == set(kernel.region.nodes)
