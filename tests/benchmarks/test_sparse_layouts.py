"""The reference of `tremula bench sparse` where PyTorch has no MKL."""

import pytest
import torch

from benchmarks.sparse import torch_layouts


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("has_mkl", [False, True])
def test_there_is_always_a_layout_that_pytorch_multiplies(has_mkl, monkeypatch):
    """Compressed layouts where they work, else coordinates; the product is right."""
    dense = torch.eye(4) * torch.arange(4.0)
    matrices = [dense.to_sparse_bsr((2, 2)), dense.to_sparse_csr()]
    if has_mkl:
        monkeypatch.setattr(torch_layouts, "_is_multiplied", lambda *_: True)
    else:
        monkeypatch.setattr(torch_layouts, "_is_multiplied", lambda *_: False)
    layouts = torch_layouts.multiplied_layouts(matrices, torch.ones(4, 2))
    assert [m.layout for m in layouts] == (
        [m.layout for m in matrices] if has_mkl else [torch.sparse_coo]
    )
    monkeypatch.undo()
    for matrix in torch_layouts.multiplied_layouts(matrices, torch.ones(4, 2)):
        assert torch.equal(matrix @ torch.ones(4, 2), dense @ torch.ones(4, 2))
