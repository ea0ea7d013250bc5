"""Sparse tensors and layers of fixed pattern: on the host and on tiles, as PyTorch has them."""

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from poptorch.sparse import DynamicSparseLinear, SparseLinear
from tremula.base.errors import PoplarError
from tremula.ir.ops import sparse_gpu
from tremula.ir.ops.sparse import sparse_mm
from tremula.ir.settings import configured

SIDES = (1, 4, 8, 16)


def layer(side, *, dtype=torch.float32, density=0.3):
    draw = torch.Generator().manual_seed(side)
    return SparseLinear(48, 32, density, side, generator=draw).to(dtype)


@pytest.mark.parametrize("side", SIDES)
def test_products_and_gradients_equal_dense_ones(side):
    """Forwards, transposed, and both gradients; also with columns that fill no vector."""
    ours = layer(side)
    for n in (1, 7, 21, 80):
        x = torch.randn(n, 48, requires_grad=True)
        ours.zero_grad()
        out = ours(x)
        out.square().sum().backward()
        dense = ours.to_dense().detach().requires_grad_()
        y = x.detach().requires_grad_()
        (expected := nn.functional.linear(y, dense, ours.bias.detach())).square().sum().backward()
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-4)
        blocks = dense.grad.reshape(32 // side, side, 48 // side, side).permute(0, 2, 1, 3)
        pattern = ours.pattern
        torch.testing.assert_close(
            ours.values.grad, blocks[pattern.rows, pattern.columns], atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("side", SIDES)
def test_kernels_for_gpus_without_triton(side):
    """ATen computes the same where there is no Triton."""
    ours = layer(side)
    row_start, columns, rows = ours.pattern.on(torch.device("cpu"))
    x, gradient = torch.randn(48, 9), torch.randn(32, 9)
    values = ours.values.detach()
    expected = sparse_mm(values, x, ours.pattern)
    result = sparse_gpu._gathered_product(values, row_start, columns, x)
    torch.testing.assert_close(result, expected)
    result = sparse_gpu.sampled_product(gradient, x, rows, columns, side)
    expected = torch.ops.tremula.sparse_mm_values(gradient, x, ours.pattern.number)
    torch.testing.assert_close(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("side", [1, 16])
def test_training_on_tiles_equals_the_host(side):
    """Three steps of a layer in a model: the same losses and weights."""
    x, target = torch.randn(6, 48), torch.randint(0, 32, (6,))
    result = {}
    for tiles in ("lazy", "run"):
        model = nn.Sequential(layer(side), nn.ReLU(), nn.Linear(32, 32))
        with torch.no_grad():
            model[2].weight.fill_(0.01)
            model[2].bias.zero_()
        loss = nn.CrossEntropyLoss()
        with configured(tiles=tiles):
            options = poptorch.Options()
            wrapped = poptorch.trainingModel(
                _WithLoss(model, loss), options, torch.optim.SGD(model.parameters(), lr=0.1)
            )
            losses = [float(wrapped(x, target)[1]) for _ in range(3)]
        result[tiles] = losses, model[0].values.detach().clone()
        wrapped.destroy()
    torch.testing.assert_close(result["run"][0], result["lazy"][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result["run"][1], result["lazy"][1], rtol=1e-4, atol=1e-5)
    assert result["lazy"][0][2] < result["lazy"][0][0]


class _WithLoss(nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x, target):
        out = self.model(x)
        return out, self.loss(out, target)


class Multiplies(nn.Module):
    """A model with a sparse matrix of PyTorch as a buffer."""

    def __init__(self, matrix, how):
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.how = how

    def forward(self, x):
        return self.how(self.matrix, x)


def _matrix():
    dense = torch.zeros(8, 12)
    dense[torch.rand(8, 12, generator=torch.Generator().manual_seed(0)) < 0.3] = 1.5
    dense[4:, 4:8] = torch.arange(16.0).view(4, 4)
    return dense


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_tensors_of_every_layout(layout):
    """A buffer of PyTorch's own layouts, multiplied from the left."""
    dense, x = _matrix(), torch.randn(12, 5)
    blocks = ((4, 4),) if layout.startswith("bs") else ()
    matrix = (
        dense.to_sparse() if layout == "coo" else getattr(dense, f"to_sparse_{layout}")(*blocks)
    )
    model = poptorch.inferenceModel(Multiplies(matrix, torch.sparse.mm))
    torch.testing.assert_close(model(x), dense @ x)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("how", "shape"),
    [
        (lambda w, x: w @ x, (12, 3)),
        (torch.mv, (12,)),
        (lambda w, x: x @ w, (3, 8)),
        (lambda w, x: nn.functional.linear(x, w), (2, 3, 12)),
    ],
    ids=["left", "vector", "right", "linear"],
)
def test_the_ways_to_multiply(how, shape):
    """From both sides, with vectors, as a layer: on the host and on tiles."""
    dense, x = _matrix(), torch.randn(*shape)
    expected = how(dense, x)
    for tiles in ("lazy", "run"):
        with configured(tiles=tiles):
            model = poptorch.inferenceModel(Multiplies(dense.to_sparse_csr(), how))
            torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)
            model.destroy()


@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_sparse_tensors_cannot_do_is_named():
    """Other functions, two sparse operands, sparse parameters."""
    matrix = _matrix().to_sparse_csr()
    with pytest.raises(poptorch.Error, match=r"add of a sparse tensor cannot be compiled"):
        poptorch.inferenceModel(Multiplies(matrix, torch.add))(torch.randn(8, 12))
    with pytest.raises(poptorch.Error, match="a sparse tensor that the model computes"):
        poptorch.inferenceModel(Multiplies(matrix, lambda w, x: (w * 2) @ x))(torch.randn(12, 2))
    model = Multiplies(None, torch.sparse.mm)
    del model.matrix
    model.matrix = nn.Parameter(matrix)
    with pytest.raises(poptorch.Error, match=r"'matrix' is a sparse tensor.*SparseLinear"):
        poptorch.inferenceModel(model)(torch.randn(12, 2))


def test_layers_from_others():
    """Pruned from a dense layer, or made from a sparse tensor: the weights that were there."""
    linear = nn.Linear(16, 8)
    pruned = SparseLinear.from_linear(linear, density=0.5, block=4)
    dense = pruned.to_dense()
    assert pruned.density == 0.5
    assert torch.equal(dense[dense != 0], linear.weight[dense != 0])
    norms = linear.weight.reshape(2, 4, 4, 4).square().sum((1, 3)).flatten()
    is_used = (dense.reshape(2, 4, 4, 4).square().sum((1, 3)) > 0).flatten()
    assert norms[is_used].min() >= norms.median()
    again = SparseLinear.from_sparse(dense.detach().to_sparse_bsr((4, 4)), linear.bias)
    x = torch.randn(3, 16)
    torch.testing.assert_close(again(x), pruned(x))


def test_rigl_moves_blocks():
    """The smallest go, those with the largest gradient come, as zeros; the rest stay."""
    ours = layer(4, density=0.25)
    before, n_blocks = ours.to_dense().detach(), len(ours.values)
    gradient = torch.zeros(32, 48)
    free = (before == 0).reshape(8, 4, 12, 4).permute(0, 2, 1, 3).all(-1).all(-1).nonzero()[0]
    row, column = (int(i) * 4 for i in free)
    gradient[row : row + 4, column : column + 4] = 9.0
    smallest = ours.values.detach().square().sum((1, 2)).argmin()
    at = int(ours.pattern.rows[smallest]) * 4, int(ours.pattern.columns[smallest]) * 4
    assert ours.rigl_update(gradient, fraction=1 / n_blocks) == 1
    after = ours.to_dense().detach()
    assert len(ours.values) == n_blocks
    assert not after[at[0] : at[0] + 4, at[1] : at[1] + 4].any()
    changed = (after != before).nonzero()
    assert ((changed // 4) == torch.tensor([at[0] // 4, at[1] // 4])).all()
    assert (row // 4, column // 4) in set(
        zip(ours.pattern.rows.tolist(), ours.pattern.columns.tolist(), strict=True)
    )


def test_a_program_with_another_pattern_is_rejected():
    """A compiled model whose pattern has changed does not run on silently."""
    ours = layer(4)
    model = poptorch.inferenceModel(ours)
    x = torch.randn(2, 48)
    model(x)
    ours.rigl_update(torch.rand(32, 48))
    with pytest.raises(poptorch.Error, match="has changed its pattern"):
        model(x)
    model.destroy()
    torch.testing.assert_close(model(x), nn.functional.linear(x, ours.to_dense(), ours.bias))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": 3}, "block must be one of"),
        ({"block": 16, "in_features": 40}, "multiples of the block 16"),
        ({"density": 0.0}, "density must be in"),
    ],
)
def test_wrong_layers_are_rejected(arguments, message):
    """Sizes, blocks and densities that cannot be are named."""
    with pytest.raises(poptorch.Error, match=message):
        SparseLinear(**{"in_features": 48, "out_features": 32, **arguments})


# -- patterns that are data ------------------------------------------------------------------------


def dynamic_layer(side, batch_size=8):
    draw = torch.Generator().manual_seed(side)
    return DynamicSparseLinear(32, 48, 0.25, side, batch_size=batch_size, generator=draw)


@pytest.mark.parametrize("side", SIDES)
def test_dynamic_layers_equal_dense_ones(side):
    """Values and gradients; slots without a block get none."""
    ours, x = dynamic_layer(side), torch.randn(8, 32, requires_grad=True)
    out = ours(x)
    out.square().sum().backward()
    dense = ours.to_dense().detach().requires_grad_()
    assert int((dense != 0).sum()) == ours.n_values
    y = x.detach().requires_grad_()
    (expected := nn.functional.linear(y, dense, ours.bias.detach())).square().sum().backward()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-4)
    assert not ours.values.grad[ours.rows < 0].any()
    total = ours.values.grad.sum()
    torch.testing.assert_close(total, dense.grad[dense != 0].sum(), atol=1e-3, rtol=1e-3)


@pytest.mark.slow
def test_one_program_runs_many_patterns_on_tiles():
    """Training, then another pattern without compiling again: results equal the host's."""
    layer = dynamic_layer(4)
    model = _WithLoss(layer, nn.CrossEntropyLoss())
    x, target = torch.randn(8, 32), torch.randint(0, 48, (8,))
    with configured(tiles="run"):
        options = poptorch.Options()
        options._Popart.set("updatableNamedBuffers", layer.pattern_buffers("model"))
        step = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
        for moves in (False, True):
            if moves:
                step.copyWeightsToHost()
                assert layer.rigl_update(torch.rand(48, 32), 0.5) > 0
                step.copyWeightsToDevice()
                step.copyNamedBuffersToDevice()
            with torch.no_grad():
                expected = nn.functional.linear(x, layer.to_dense(), layer.bias)
            result, _ = step(x, target)
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)
        step.destroy()


def test_more_blocks_than_there_is_room_for_change_nothing():
    """The error of PopSparse; the layer keeps its pattern and values."""
    layer = DynamicSparseLinear(512, 512, 0.02, 4, batch_size=8)
    before = layer.to_dense().detach().clone()
    with pytest.raises(PoplarError, match="Overflow in buckets"):
        layer.set_weight(torch.ones(512, 512), np.arange(128 * 128), 4)
    assert torch.equal(layer.to_dense(), before)
