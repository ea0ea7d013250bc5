"""Ways to say things in PyTorch that a recording turns into plain operations, run on tiles."""

import torch
from torch import nn

from tests.ir.like_aten import assert_like_aten


def test_results_given_by_out_and_tensors_changed_in_shape():
    """`out=` writes a tensor that exists; squeeze_ after a write keeps earlier shapes apart."""

    def function(x):
        product = torch.empty(3)
        torch.mv(x, x[0], out=product)
        row = x.narrow(0, 0, 1).clone()
        row.mul_(2).squeeze_(0)
        return [product, row, x.quantile(0.3, 1), torch.vander(x[0])]

    assert_like_aten(function, torch.randn(3, 5, generator=torch.Generator().manual_seed(1)))


def test_spectral_norm_in_training():
    """Power iterations write their vectors with `out=`; weights come from them."""
    torch.manual_seed(1)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))
    names = [name for name, _ in (*layer.named_parameters(), *layer.named_buffers())]
    tensors = [t.detach().clone() for t in (*layer.parameters(), *layer.buffers())]

    def function(x, *state):
        state = dict(zip(names, [t.clone() for t in state], strict=True))
        return torch.func.functional_call(layer, state, (x,))

    assert_like_aten(function, torch.randn(4, 6), *tensors)
