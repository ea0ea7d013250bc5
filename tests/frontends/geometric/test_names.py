"""Public names of PopTorch Geometric: modules, classes, functions and their arguments."""

import importlib
from pathlib import Path

import torch
import torch_geometric.nn as pyg

from poptorch_geometric import ops
from poptorch_geometric._modules import MODULES
from tests.name_lists import differences


def test_public_names_exist():
    """All names of the list exist, with their arguments."""
    result = differences(Path(__file__).with_name("names.txt"))
    assert not result.missing
    assert not result.lacking


def test_modules_do_not_hide_functions():
    """`ops.knn` is a module to import from and, as a name of `ops`, the function."""
    for name in MODULES:
        importlib.import_module(f"poptorch_geometric.{name}")
    from poptorch_geometric.ops.knn import knn

    assert ops.knn is knn
    assert callable(ops.radius)


def test_layers_with_static_shapes_equal_those_of_pyg():
    """The layers are classes that compute what PyG's do, outside of a model, too."""
    torch.manual_seed(0)
    x, edges = torch.randn(5, 3), torch.tensor([[0, 1, 2, 3, 3], [1, 2, 2, 4, 0]])
    types = torch.tensor([0, 1, 0, 1, 1])
    for name, arguments, inputs in (
        ("ClusterGCNConv", (3, 2), (x, edges)),
        ("MFConv", (3, 2), (x, edges)),
        ("HeteroLinear", (3, 2, 2), (x, types)),
        ("InstanceNorm", (3,), (x, types.sort().values, 2)),
    ):
        ours, theirs = getattr(ops, name)(*arguments), getattr(pyg, name)(*arguments)
        assert isinstance(ours, getattr(pyg, name))
        ours.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(ours(*inputs), theirs(*inputs))
    ops.Aggregation().assert_sorted_index(torch.tensor([1, 0]))  # which PyG's rejects
