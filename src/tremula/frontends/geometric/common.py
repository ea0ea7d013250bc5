"""Classes of PyG that the whole package names, and stores of a data object in a fixed order."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.data.storage import BaseStorage

DataBatch = type(Batch(_base_cls=Data))
HeteroDataBatch = type(Batch(_base_cls=HeteroData))

# PyG makes classes of batches as it goes: a type checker would know none of their attributes.
GraphBatch = Any

# A store's key: None for that of `Data` and for what a `HeteroData` holds for the whole graph.
StoreKey = str | tuple[str, str, str] | None


def call_once(f: Callable) -> Callable:
    """Decorator: only the first call does something; the others return None."""
    has_run = False

    @wraps(f)
    def wrapper(*args, **kwargs) -> object:
        nonlocal has_run
        if has_run:
            return None
        has_run = True
        return f(*args, **kwargs)

    return wrapper


def stores_of(data: BaseData) -> Iterator[tuple[StoreKey, BaseStorage]]:
    """The stores of a data object: its own, or the global one, those of nodes, those of edges."""
    yield None, store_of(data)
    if isinstance(data, HeteroData):
        yield from data.node_items()
        yield from data.edge_items()


def store_of(data: BaseData, key: StoreKey = None) -> BaseStorage:
    """The store of a type of nodes or edges; without one, an object's own or the global one."""
    if key is not None:
        return data[key]  # pyright: ignore[reportArgumentType] - edges have triples as keys
    return data._global_store if isinstance(data, HeteroData) else data._store


def is_hetero(data: BaseData) -> bool:
    """Whether nodes and edges have types."""
    return isinstance(data, HeteroData)
