"""Products with tiny matrices become sums of products, with the same results."""

import pytest
import torch
from torch import Tensor

from tests.ir.steps import captured
from tremula.ir.host.passes.small_products import sum_small_products
from tremula.ir.nodes import schema_name
from tremula.ir.passes import HOST_PASSES, apply

PRODUCTS = {"aten::mm", "aten::bmm"}


@pytest.mark.parametrize(
    ("left", "right", "is_replaced"),
    [
        ((5000, 9), (9, 5), True),
        ((5000, 1), (1, 7), True),
        ((4100, 3, 5), (4100, 5, 2), True),
        ((7, 3, 1), (7, 1, 2), True),
        ((7, 3, 1), (7, 1, 1), True),
        ((1100, 128, 5), (1100, 5, 3), True),
        ((1100, 5, 128), (1100, 128, 3), True),
        ((1, 5, 9), (1, 9, 5000), True),
        ((3, 5000, 4), (3, 4, 4), True),
        ((1100, 128, 40), (1100, 40, 3), False),
        ((5000, 9), (9, 64), False),
        ((50, 9), (9, 5), False),
        ((9, 5000), (5000, 5), False),
    ],
)
def test_only_products_that_move_more_than_they_compute(
    left: tuple[int, ...], right: tuple[int, ...], is_replaced: bool
):
    """What is replaced gives the same; sums over rows and larger products stay as they are."""
    torch.manual_seed(0)
    inputs = torch.randn(left), torch.randn(right)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.mm(a, b) if a.dim() == 2 else torch.bmm(a, b)

    step = sum_small_products(apply(captured(product, *inputs), HOST_PASSES, "host"))
    names = {schema_name(node) for node in step.graph.nodes}
    assert names.isdisjoint(PRODUCTS) == is_replaced
    (result,) = step.module().forward(*inputs)
    torch.testing.assert_close(result, product(*inputs), rtol=1e-4, atol=1e-4)
    halves = apply(captured(product, *(x.bfloat16() for x in inputs)), HOST_PASSES, "host")
    assert PRODUCTS & {schema_name(node) for node in sum_small_products(halves).graph.nodes}
