"""Every convolution, aggregation, normalisation and pooling of PyG, as a case that can be trained.

A case makes a layer and says what it is called with. Arguments that keep shapes static, such as
`add_self_loops=False` or `dim_size`, are part of the case, and of the page made from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import poptorch

N_NODES, N_EDGES, N_GRAPHS, WIDTH = 12, 26, 3, 8
LOOPS = "add_self_loops=False"  # T.AddSelfLoops does it once, in the data


def _inputs() -> dict[str, Tensor]:
    """Three graphs of four nodes: edges sorted by target, none of them a loop, none twice."""
    generator = torch.Generator().manual_seed(0)
    pairs = [
        (4 * g + a, 4 * g + b)
        for g in range(N_GRAPHS)
        for b in range(4)
        for a in range(4)
        if a != b and (a + 2 * b + g) % 4
    ]
    edges = torch.tensor(pairs).t()
    n_edges = edges.shape[1]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def integers(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    return {
        "x": normal(N_NODES, WIDTH),
        "x0": normal(N_NODES, WIDTH),
        "layers": normal(N_NODES, 2, WIDTH),
        "pos": normal(N_NODES, 3),
        "normal": nn.functional.normalize(normal(N_NODES, 3)),
        "edge_index": edges,
        "negative": edges.flip(0)[:, edges[0].argsort(stable=True)],
        "edge_weight": torch.rand(n_edges, generator=generator) + 0.5,
        "edge_attr": normal(n_edges, 4),
        "pseudo": torch.rand(n_edges, 4, generator=generator),
        "edge_type": integers(3, n_edges),
        "node_type": integers(2, N_NODES).sort().values,
        "batch": torch.arange(N_NODES) // 4,
        "hyperedges": torch.stack([torch.arange(N_NODES), torch.arange(N_NODES) % 5]),
        "dense_x": normal(N_GRAPHS, 4, WIDTH),
        "dense_adj": (torch.rand(N_GRAPHS, 4, 4, generator=generator) > 0.4).float(),
        "assignment": normal(N_GRAPHS, 4, 2),
        "mesh_edges": torch.stack(
            [torch.arange(48) % N_NODES, torch.arange(48) // 4]
        ),  # four neighbours of each of 12 edges of a mesh
    }


INPUTS = _inputs()


@dataclass(frozen=True)
class Case:
    """A layer: how it is made, what it is called with, or why it cannot be static."""

    name: str
    room: str
    make: Callable[[], Any] | None
    inputs: tuple[str, ...] = ("x", "edge_index")
    options: str = ""  # arguments of the layer or call that keep shapes static
    call: Callable[..., Any] | None = None  # how the layer is called, if not with its inputs
    why_not: str = ""

    def tensors(self) -> list[Tensor]:
        return [INPUTS[name].clone() for name in self.inputs]


class Trained(nn.Module):
    """A layer behind a linear one, so that gradients pass through it, and a loss."""

    def __init__(self, case: Case):
        super().__init__()
        assert case.make is not None, f"{case.name} cannot be made"
        made = case.make()
        self.front = nn.Linear(WIDTH, WIDTH)
        self.layer = made if isinstance(made, nn.Module) else None
        self._call = case.call or made

    def forward(self, first: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        first = self.front(first)
        if self.layer is not None and self._call is not self.layer:
            result = self._call(self.layer, first, *others)
        else:
            result = self._call(first, *others)
        out = torch.cat([part.flatten() for part in _floats(result)])
        return out, poptorch.identity_loss((out * out).mean(), reduction="none")


def _floats(value: Any) -> list[Tensor]:
    """All tensors of real numbers in a result."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, list | tuple) or not hasattr(value, "keys"):
        return [part for item in (value or ()) for part in _floats(item)]
    return []


def _mlp(n_in: int = WIDTH, n_out: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(n_in, n_out), nn.Tanh(), nn.Linear(n_out, n_out))


E, EW, EA = ("x", "edge_index"), ("x", "edge_index", "edge_weight"), (
    "x", "edge_index", "edge_attr",
)  # fmt: skip
ET = ("x", "edge_index", "edge_type")
XB = ("x", "batch")
W = WIDTH
_KIND = ("a", "to", "a")
_META = (["a"], [_KIND])
_DEGREES = torch.bincount(INPUTS["edge_index"][1].bincount(minlength=N_NODES))


def _typed(layer: nn.Module, x: Tensor, edges: Tensor) -> Any:
    return layer({"a": x}, {_KIND: edges})


def _sized(layer: nn.Module, x: Tensor, batch: Tensor) -> Tensor:
    return layer(x, batch, dim_size=N_GRAPHS)


def _limited(layer: nn.Module, x: Tensor, batch: Tensor) -> Tensor:
    return layer(x, batch, dim_size=N_GRAPHS, max_num_elements=4)


def _of_batch(layer: nn.Module, x: Tensor, batch: Tensor) -> Tensor:
    return layer(x, batch, batch_size=N_GRAPHS)


def _conv(name: str, *args: Any, inputs: tuple[str, ...] = E, options: str = "", **kwargs) -> Case:
    call = kwargs.pop("call", None)

    def make() -> nn.Module:
        # Modules among the arguments are made again, so that cases share no parameters.
        values = [arg() if callable(arg) else arg for arg in args]
        made = {k: v() if callable(v) and k in ("nn", "conv") else v for k, v in kwargs.items()}
        return getattr(pyg, name)(*values, **made)

    return Case(name, "conv", make, inputs, options, call)


def _no_loops(name: str, *args: Any, inputs: tuple[str, ...] = E, **kwargs) -> Case:
    return _conv(name, *args, inputs=inputs, options=LOOPS, add_self_loops=False, **kwargs)


def _gps() -> nn.Module:
    return pyg.GPSConv(W, pyg.GINConv(_mlp()), heads=2, dropout=0.0)


CONVOLUTIONS = [
    _conv("SimpleConv"),
    _conv("GCNConv", W, W),
    _conv("ChebConv", W, W, K=3),
    _conv("SAGEConv", W, W),
    _conv("GraphConv", W, W, inputs=EW),
    Case(
        "GravNetConv",
        "conv",
        lambda: pyg.GravNetConv(W, W, space_dimensions=2, propagate_dimensions=4, k=2),
        XB,
    ),
    _conv("GatedGraphConv", W, 2, inputs=EW),
    _conv("ResGatedGraphConv", W, W),
    _no_loops("GATConv", W, W, heads=2),
    *(
        Case(name, "conv", None, why_not="PyG computes it in `pylibcugraphops` alone")
        for name in ("CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv")
    ),
    Case("FusedGATConv", "conv", None, why_not="PyG computes it in `dgNN` alone"),
    _no_loops("GATv2Conv", W, W, heads=2, inputs=EA, edge_dim=4),
    _conv("TransformerConv", W, W, heads=2, edge_dim=4, inputs=EA),
    _no_loops("AGNNConv"),
    _conv("TAGConv", W, W, inputs=EW),
    _conv("GINConv", _mlp, train_eps=True),
    _conv("GINEConv", _mlp, edge_dim=4, inputs=EA),
    _conv("ARMAConv", W, W, num_stacks=2, num_layers=2),
    _conv("SGConv", W, W, K=2),
    _conv("SSGConv", W, W, alpha=0.1, K=2),
    _conv("APPNP", 2, 0.1),
    _conv("MFConv", W, W, max_degree=3),
    _conv("RGCNConv", W, W, num_relations=3, inputs=ET),
    _conv("FastRGCNConv", W, W, num_relations=3, inputs=ET),
    _conv("RGATConv", W, W, num_relations=3, inputs=ET),
    _conv("SignedConv", W, W, first_aggr=True, inputs=("x", "edge_index", "negative")),
    _conv("DNAConv", W, heads=2, groups=1, dropout=0.0, inputs=("layers", "edge_index")),
    _no_loops("PointNetConv", lambda: _mlp(W + 3), inputs=("x", "pos", "edge_index")),
    _conv("GMMConv", W, W, dim=4, kernel_size=2, inputs=("x", "edge_index", "pseudo")),
    _conv("SplineConv", W, W, dim=4, kernel_size=2, inputs=("x", "edge_index", "pseudo")),
    _conv("NNConv", W, W, nn=lambda: _mlp(4, W * W), inputs=EA),
    _conv("CGConv", W, dim=4, inputs=EA),
    _conv("EdgeConv", lambda: _mlp(2 * W)),
    _conv("DynamicEdgeConv", lambda: _mlp(2 * W), k=2, inputs=XB),
    _conv("XConv", W, W, dim=3, kernel_size=2, inputs=("x", "pos", "batch")),
    _no_loops("PPFConv", lambda: _mlp(W + 4), inputs=("x", "pos", "normal", "edge_index")),
    _no_loops("FeaStConv", W, W, heads=2),
    _no_loops("PointTransformerConv", W, W, inputs=("x", "pos", "edge_index")),
    Case(
        "HypergraphConv",
        "conv",
        lambda: pyg.HypergraphConv(W, W),
        ("x", "hyperedges"),
        "num_edges=n",
        lambda layer, x, edges: layer(x, edges, num_edges=5),
    ),
    _conv("LEConv", W, W, inputs=EW),
    _conv(
        "PNAConv", W, W, aggregators=["mean", "min", "max", "std"],
        scalers=["identity", "amplification", "attenuation"], deg=_DEGREES, edge_dim=4, inputs=EA,
    ),
    _conv("ClusterGCNConv", W, W, diag_lambda=0.1),
    _conv("GENConv", W, W, norm="layer"),
    _conv("GCN2Conv", W, alpha=0.1, inputs=("x", "x0", "edge_index")),
    Case("PANConv", "conv", None, why_not="multiplies sparse matrices"),
    Case("WLConv", "conv", None, why_not="colours nodes by hashing values; has no gradient"),
    _conv("WLConvContinuous", inputs=EW),
    _conv("FiLMConv", W, W, num_relations=3, inputs=ET),
    Case(
        "SuperGATConv", "conv", None,
        why_not="draws another number of negative edges in each step of training",
    ),
    _no_loops("FAConv", W, dropout=0.0, normalize=True, inputs=("x", "x0", "edge_index")),
    _no_loops("EGConv", W, W, num_heads=2, num_bases=2, aggregators=["sum", "mean", "max"]),
    _conv("PDNConv", W, W, edge_dim=4, hidden_channels=W, inputs=EA),
    _conv("GeneralConv", W, W, in_edge_channels=4, inputs=EA),
    _conv("HGTConv", W, W, _META, heads=2, call=_typed),
    Case(
        "HEATConv",
        "conv",
        lambda: pyg.HEATConv(W, W, 2, 3, 2, 4, 2, heads=2),
        ("x", "edge_index", "node_type", "edge_type", "edge_attr"),
    ),
    Case(
        "HeteroConv", "conv", lambda: pyg.HeteroConv({_KIND: pyg.SAGEConv(W, W)}), E, "", _typed
    ),
    _conv("HANConv", W, W, _META, heads=2, call=_typed),
    _conv("LGConv"),
    Case(
        "PointGNNConv",
        "conv",
        lambda: pyg.PointGNNConv(_mlp(W, 3), _mlp(W + 3), _mlp()),
        ("x", "pos", "edge_index"),
    ),
    Case(
        "GPSConv", "conv", _gps, ("x", "edge_index", "batch"),
    ),
    _conv("AntiSymmetricConv", W, phi=None),
    Case("DirGNNConv", "conv", lambda: pyg.DirGNNConv(pyg.SAGEConv(W, W))),
    _conv("MixHopConv", W, W),
    _conv("MeshCNNConv", W, W, inputs=("x", "mesh_edges")),
]  # fmt: skip


def _aggr(name: str, *args: Any, limited: bool = False, **kwargs) -> Case:
    options = "dim_size, max_num_elements" if limited else "dim_size"
    call = _limited if limited else _sized

    def make() -> nn.Module:
        values = [arg() if callable(arg) else arg for arg in args]
        return getattr(pyg.aggr, name)(*values, **kwargs)

    return Case(name, "aggr", make, XB, options, call)


AGGREGATIONS = [
    *(_aggr(f"{kind}Aggregation") for kind in ("Sum", "Mean", "Max", "Min", "Mul", "Var", "Std")),
    _aggr("MultiAggregation", ["mean", "max"]),
    _aggr("SoftmaxAggregation", learn=True),
    _aggr("PowerMeanAggregation", learn=True),
    _aggr("MedianAggregation"),
    _aggr("QuantileAggregation", 0.3),
    _aggr("LSTMAggregation", W, W, limited=True),
    _aggr("GRUAggregation", W, W, limited=True),
    _aggr("Set2Set", W, processing_steps=2),
    Case(
        "DegreeScalerAggregation", "aggr",
        lambda: pyg.aggr.DegreeScalerAggregation(
            ["mean"], ["identity", "linear"], torch.tensor([0, 1, 5, 3])
        ),
        XB, "dim_size", _sized,
    ),
    _aggr("SortAggregation", 2, limited=True),
    _aggr("GraphMultisetTransformer", W, 3, heads=2, limited=True),
    _aggr("AttentionalAggregation", lambda: _mlp(W, 1)),
    Case(
        "EquilibriumAggregation", "aggr", None,
        why_not="minimises until it converges, by gradients inside forward",
    ),
    _aggr("MLPAggregation", W, W, 4, num_layers=1),
    _aggr("DeepSetsAggregation", _mlp, _mlp),
    _aggr("SetTransformerAggregation", W, heads=2, limited=True),
    _aggr("LCMAggregation", W, W, limited=True),
    _aggr("VariancePreservingAggregation"),
    _aggr("PatchTransformerAggregation", W, W, 2, W, heads=2, limited=True),
]  # fmt: skip


def _norm(name: str, *args: Any, of_batch: bool = True, **kwargs) -> Case:
    inputs = XB if of_batch else ("x",)
    call = _of_batch if of_batch else None
    options = "batch_size" if of_batch else ""
    return Case(name, "norm", lambda: getattr(pyg, name)(*args, **kwargs), inputs, options, call)


NORMALISATIONS = [
    _norm("BatchNorm", W, of_batch=False),
    Case("HeteroBatchNorm", "norm", lambda: pyg.HeteroBatchNorm(W, 2), ("x", "node_type")),
    _norm("InstanceNorm", W, affine=True, track_running_stats=True),
    _norm("LayerNorm", W),
    Case("HeteroLayerNorm", "norm", lambda: pyg.HeteroLayerNorm(W, 2), ("x", "node_type")),
    _norm("GraphNorm", W),
    _norm("GraphSizeNorm"),
    _norm("PairNorm"),
    Case(
        "MeanSubtractionNorm", "norm", pyg.MeanSubtractionNorm, XB, "dim_size",
        lambda layer, x, batch: layer(x, batch, dim_size=N_GRAPHS),
    ),
    Case("MessageNorm", "norm", lambda: pyg.MessageNorm(True), ("x", "x0")),
    _norm("DiffGroupNorm", W, groups=2, of_batch=False),
]  # fmt: skip


def _dynamic(names: str, why_not: str) -> list[Case]:
    return [Case(name, "pool", None, why_not=why_not) for name in names.split()]


def _global(name: str) -> Case:
    function = getattr(pyg, name)
    return Case(
        name, "pool", nn.Identity, XB, "size",
        lambda _layer, x, batch: function(x, batch, size=N_GRAPHS),
    )  # fmt: skip


POOLINGS = [
    *map(_global, ("global_add_pool", "global_mean_pool", "global_max_pool")),
    Case(
        "MemPooling", "pool", lambda: pyg.MemPooling(W, W, 2, 2), XB, "max_num_nodes, batch_size",
        lambda layer, x, batch: layer(x, batch, max_num_nodes=4, batch_size=N_GRAPHS),
    ),
    Case(
        "knn_interpolate", "pool", nn.Identity, ("x", "pos", "normal"), "",
        lambda _layer, x, pos, other: pyg.knn_interpolate(x, pos, other, k=2),
    ),
    *_dynamic(
        "TopKPooling SAGPooling ASAPooling PANPooling EdgePooling ClusterPooling",
        "how many nodes and edges stay depends on scores",
    ),
    *_dynamic(
        "max_pool avg_pool max_pool_x avg_pool_x max_pool_neighbor_x avg_pool_neighbor_x",
        "the number of clusters depends on values",
    ),
    Case(
        "voxel_grid", "pool", nn.Identity, ("x", "pos", "batch"), "start, end",
        lambda _layer, x, pos, batch: x
        * pyg.voxel_grid(pos, 0.5, batch, start=-4.0, end=4.0)[:, None].float().log1p(),
    ),
    *_dynamic("graclus", "matches nodes one after another, by chance"),
    *_dynamic("approx_knn approx_knn_graph", "PyG computes it in `pynndescent` alone"),
]  # fmt: skip

D = ("dense_x", "dense_adj")


def _dense(name: str, *args: Any) -> Case:
    def make() -> nn.Module:
        return getattr(pyg, name)(*(arg() if callable(arg) else arg for arg in args))

    return Case(name, "dense", make, D)


def _assigned(name: str) -> Case:
    function = getattr(pyg, name)
    return Case(
        name, "dense", nn.Identity, (*D, "assignment"), "",
        lambda _layer, x, adj, s: function(x, adj, s),
    )  # fmt: skip


DENSE = [
    Case("Linear", "dense", lambda: pyg.Linear(W, W), ("x",)),
    Case("HeteroLinear", "dense", lambda: pyg.HeteroLinear(W, W, 2), ("x", "node_type")),
    Case(
        "HeteroDictLinear", "dense", lambda: pyg.HeteroDictLinear({"a": W}, W), ("x",), "",
        lambda layer, x: layer({"a": x}),
    ),
    _dense("DenseGCNConv", W, W),
    _dense("DenseGINConv", _mlp),
    _dense("DenseGraphConv", W, W),
    _dense("DenseSAGEConv", W, W),
    _dense("DenseGATConv", W, W),
    _assigned("dense_diff_pool"),
    _assigned("dense_mincut_pool"),
    Case("DMoNPooling", "dense", lambda: pyg.DMoNPooling(W, 2), D),
]  # fmt: skip

CASES = [*CONVOLUTIONS, *AGGREGATIONS, *NORMALISATIONS, *POOLINGS, *DENSE]
