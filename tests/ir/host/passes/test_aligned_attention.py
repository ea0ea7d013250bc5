"""Attention over an odd number of keys: aligned rows for tensor cores, and equal results."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.ir.host.passes.test_fused_attention import Attention, step_of
from tremula.ir.host.passes.aligned_attention import (
    aligned_attention,
    aligned_attention_backward,
    needs_more_keys,
)
from tremula.ir.host.passes.fused_attention import fuse_attention
from tremula.ir.host.passes.memory_format import relax_strides
from tremula.ir.passes.clean import drop_dead

_N_KEYS = 67  # 68 are aligned in float32, 72 in halves


@pytest.fixture
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("how", [{}, {"mask": "lengths"}, {"is_causal": True}, {"n_groups": 2}])
@pytest.mark.usefixtures("tf32")
def test_attention_with_more_keys_has_the_same_gradients(how):
    """Without a mask, with one, causal, and with keys that heads share."""
    how = {**how, **({"enable_gqa": True} if "n_groups" in how else {})}
    step = drop_dead(fuse_attention(step_of(torch.float32, _N_KEYS, **how)))
    targets = {node.target for node in step.graph.nodes}
    assert {aligned_attention, aligned_attention_backward} <= targets
    torch.manual_seed(0)
    model = Attention(**how)
    inputs = torch.randn(2, _N_KEYS, 32), torch.tensor([_N_KEYS, 9])
    loss = model(*inputs)
    loss.backward()
    arguments = [*(p.detach() for p in model.parameters()), *inputs, torch.tensor(0.1)]
    result, *gradients = relax_strides(step).module().forward(*arguments)
    torch.testing.assert_close(result, loss.detach())
    for gradient, parameter in zip(gradients, model.parameters(), strict=False):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n_queries", [5, 90])
@pytest.mark.parametrize("n_dims_of_mask", [0, 2, 3, 4])
def test_more_keys_are_seen_by_no_query(n_queries, n_dims_of_mask):
    """Also where there are more queries than keys, and masks with fewer dimensions."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, n, 8) for n in (n_queries, _N_KEYS, _N_KEYS))
    shape = (2, 1, n_queries, _N_KEYS)[4 - n_dims_of_mask :]
    mask = torch.randn(shape) if n_dims_of_mask else None
    result, _ = aligned_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(result, scaled_dot_product_attention(query, key, value, mask))


@pytest.mark.usefixtures("tf32")
def test_only_unaligned_scores_of_tensor_cores_need_more_keys():
    """Not full float32, aligned rows, a few keys, or float64."""

    def needs(n_keys: int, dtype: torch.dtype = torch.float32) -> bool:
        return needs_more_keys(torch.empty(1, 1, n_keys, 8, dtype=dtype))

    assert needs(197)
    assert not needs(196)
    assert needs(196, torch.bfloat16), "eight halves are 16 bytes"
    assert not needs(17)
    assert not needs(197, torch.float64)
    torch.set_float32_matmul_precision("highest")
    assert not needs(197)
    assert needs(197, torch.float16)
