"""Layers against PyTorch's, with its weights; tables in parts; helpers for tests of modules."""

import numpy as np
import pytest
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Conv2D, Embedding, GroupNorm, LayerNorm, Linear
from popxl_addons.layers.layer_norm_distributed import LayerNormDistributed
from popxl_addons.layers.linear_gq import LinearGQ, group_quantize_compress_numpy
from popxl_addons.ops.group_quantize_decompress import group_quantize_decompress_numpy
from popxl_addons.testing_utils import TensorInput, run_module
from tests.frontends.popxl_addons.graphs.test_module import run

DRAW = np.random.default_rng(0)
ROWS = DRAW.normal(size=(4, 6)).astype(np.float32)
IMAGES = DRAW.normal(size=(2, 4, 5, 5)).astype(np.float32)


def randomised(layer):
    """A layer of PyTorch with random parameters."""
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize(
    ("module", "layer", "x"),
    [
        (Linear(3), torch.nn.Linear(6, 3), ROWS),
        (Linear(3, bias=False), torch.nn.Linear(6, 3, bias=False), ROWS),
        (LayerNorm(), torch.nn.LayerNorm(6), ROWS),
        (GroupNorm(2), torch.nn.GroupNorm(2, 4), IMAGES),
        (Conv2D(8, 3), torch.nn.Conv2d(4, 8, 3), IMAGES),
        (
            Conv2D(8, (3, 1), (2, 1), (1, 0, 1, 0), groups=2, bias=False),
            torch.nn.Conv2d(4, 8, (3, 1), (2, 1), (1, 0), groups=2, bias=False),
            IMAGES,
        ),
        (Conv2D(2, 3, paddings="same_upper"), torch.nn.Conv2d(4, 2, 3, padding="same"), IMAGES),
    ],
)
def test_layers_equal_those_of_pytorch(module, layer, x):
    """With weights from `torch_mapping`, outputs agree."""
    randomised(layer)
    (result,) = run_module(
        module, TensorInput(x), weights=lambda v: type(module).torch_mapping(v, layer)
    )
    expected = layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_a_layer_norm_takes_rows_and_its_epsilon():
    """Other ranks are an error; `eps` is an argument of the call."""
    (result,) = run_module(LayerNorm(), TensorInput(ROWS), eps=1.0)
    centred = ROWS - ROWS.mean(1, keepdims=True)
    expected = centred / np.sqrt(ROWS.var(1, keepdims=True) + 1)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="N x C"):
        run_module(LayerNorm(), TensorInput(IMAGES))


@pytest.mark.parametrize("dim", [-1, 0])
def test_group_quantised_layers_take_pytorch_weights(dim):
    """Weights of 4 bits along either dimension: the product with what they decompress to."""
    layer = randomised(torch.nn.Linear(16, 8))
    x = DRAW.normal(size=(3, 16)).astype(np.float16)
    (result,) = run_module(
        LinearGQ(8, group_size=8, dim=dim), TensorInput(x),
        weights=lambda v: LinearGQ.torch_mapping(v, layer, popxl.float16, 8, dim),
    )  # fmt: skip
    weight = layer.weight.detach().numpy().T
    packed = group_quantize_compress_numpy(weight, 8, dim)
    near = group_quantize_decompress_numpy(*packed, dim).astype(np.float32)
    assert np.abs(near - weight).max() < 0.3
    expected = x.astype(np.float32) @ near + layer.bias.detach().numpy()
    np.testing.assert_allclose(result, expected, rtol=0.02, atol=0.03)


def test_tables_in_parts():
    """Groups of replicas have parts of a table: their rows add up to those of the whole."""
    ir = popxl.Ir(replication=2)
    n_rows = Embedding.get_vocab_shard_size(40, 2)
    assert n_rows == 32
    assert Embedding.get_offsets(40, 2).tolist() == [0, 32]
    words = np.array([0, 31, 32, 39], np.int32)
    table = DRAW.normal(size=(2, n_rows, 3)).astype(np.float32)
    with ir.main_graph:
        each = ir.replica_grouping(group_size=1)
        module = Embedding(popxl.float32, 40, 3, replica_grouping=each)
        first = popxl.variable(module.offsets.astype(np.int32), replica_grouping=each)
        indices = popxl.variable(words) - first
        factories, graph = module.create_graph(indices)
        args = factories.init()
        (part,) = graph.bind(args).call(indices)
        stream = addons.host_store(ops.collectives.replicated_all_reduce(part))
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variable_data(args.weight, table)
        result = session.run()[stream]
    for row in result:
        np.testing.assert_allclose(row, table.reshape(-1, 3)[words], rtol=1e-6)


def test_distributed_layer_norms():
    """Rows whose columns two replicas have are normalised as whole rows."""
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        each = ir.replica_grouping(group_size=1)
        part = popxl.variable(np.stack(np.split(ROWS, 2, 1)), replica_grouping=each)
        factories, graph = LayerNormDistributed(ir.replica_grouping()).create_graph(part)
        assert factories.weight.replica_grouping == each
        (y,) = graph.bind(factories.init()).call(part)
        stream = addons.host_store(y)
    with popxl.Session(ir, "ipu_hw") as session:
        result = session.run()[stream]
    expected = torch.nn.functional.layer_norm(torch.from_numpy(ROWS), (6,)).numpy()
    np.testing.assert_allclose(np.concatenate(list(result), 1), expected, rtol=1e-4, atol=1e-5)


def test_first_weights_are_reproducible():
    """Truncated normal numbers of NumPy's global generator: the same after the same seed."""
    values = []
    for _ in range(2):
        ir = popxl.Ir()
        np.random.seed(3)  # noqa: NPY002
        with ir.main_graph:
            factories, _ = Linear(50).create_graph(popxl.TensorSpec((4, 40), popxl.float32))
            args = factories.init()
        values.append(run(ir, args.weight)[0])
    np.testing.assert_array_equal(*values)
    assert 0.03 < np.abs(values[0]).max() <= 0.04
    assert abs(values[0].std() / 0.0176 - 1) < 0.1


def test_modules_that_write_their_inputs():
    """`run_module` passes tensors by reference where the module asks for it."""

    class Adds(addons.Module):
        @popxl.in_sequence(True)
        def build(self, x: popxl.TensorByRef, a: popxl.Tensor):
            ops.add_(x, a)
            return x

    (result,) = run_module(
        Adds(), TensorInput(ROWS), TensorInput(ROWS.astype(np.float64), popxl.float32)
    )
    np.testing.assert_allclose(result, 2 * ROWS)
