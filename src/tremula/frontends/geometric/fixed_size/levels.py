"""Levels: whether an attribute has a row per node, one per edge, or belongs to the whole graph."""

from collections.abc import Iterable

from torch import Tensor
from torch_geometric.data.data import BaseData
from torch_geometric.data.storage import BaseStorage

from tremula.frontends.geometric.common import StoreKey, stores_of

NODE, EDGE, GRAPH, ONE_ROW = "node", "edge", "graph", "one row"
Levels = dict[tuple[StoreKey, str], str]

# Attributes that PyG itself reads as one row per node.
_NODE_KEYS = {"x", "pos", "z", "batch", "normal", "n_id"}


def attribute_levels(samples: Iterable[BaseData], known: Levels | None = None) -> Levels:
    """The level of every tensor attribute, such that all samples agree with it.

    One graph does not say it: with one node, an attribute of one row may belong to the node or to
    the graph. So a level must fit all samples, and names decide what sizes leave open.
    `known`: levels found before; they must fit, too.
    """
    possible: dict[tuple[StoreKey, str], set[str]] = {}
    for data in samples:
        for key, store in stores_of(data):
            for name, value in store.items():
                if isinstance(value, Tensor) and name != "ptr":
                    result = _fitting(data, store, name, value)
                    place = (key, name)
                    possible[place] = possible.get(place, {NODE, EDGE, GRAPH, ONE_ROW}) & result
    known = known or {}
    return {
        place: _choose(place[1], fitting, known.get(place)) for place, fitting in possible.items()
    }


def _fitting(data: BaseData, store: BaseStorage, name: str, value: Tensor) -> set[str]:
    """The levels at which one graph's value has the right number of rows; ONE_ROW if it has one."""
    cat_dim = data.__cat_dim__(name, value, store) if value.dim() else None
    if not isinstance(cat_dim, int):
        return {GRAPH, ONE_ROW}
    n_rows = value.shape[cat_dim]
    fitting = {ONE_ROW} if n_rows == 1 else set()
    if name != "y" or n_rows == 1:  # labels of graphs have one row, whatever else may have more
        fitting.add(GRAPH)
    if hasattr(store, "num_nodes") and n_rows == store.num_nodes:
        fitting.add(NODE)
    if hasattr(store, "num_edges") and n_rows == store.num_edges:
        fitting.add(EDGE)
    return fitting


def _choose(name: str, fitting: set[str], known: str | None) -> str:
    """The level of those that fit all samples; names decide if all graphs have one row of it."""
    allowed = (fitting - {ONE_ROW}) if known is None else (fitting & {known})
    assert allowed, (
        f"Incorrect input data: attribute {name!r} has incompatible shapes. It must have one row "
        "per node, or one per edge, or the same rows for each graph, in all graphs of a data set."
        + (" Labels `y` of a graph have one row." if name == "y" else "")
    )
    if known is not None:
        return known
    if EDGE in fitting and ("edge" in name or not fitting & {NODE, ONE_ROW}):
        return EDGE
    if NODE in fitting and (ONE_ROW not in fitting or name in _NODE_KEYS or "node" in name):
        return NODE
    return GRAPH


def level_of(levels: Levels, key: StoreKey, name: str, value: object) -> str:
    """The level of an attribute; what is not a tensor belongs to the graph."""
    return levels.get((key, name), GRAPH) if isinstance(value, Tensor) else GRAPH
