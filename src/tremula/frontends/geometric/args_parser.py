"""PyGArgsParser: how data objects of PyG go into models and come out of loaders."""

import copy
from collections.abc import Iterator

from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.data import BaseData

from tremula.frontends.geometric.common import (
    DataBatch,
    HeteroDataBatch,
    call_once,
    store_of,
    stores_of,
)
from tremula.frontends.poptorch.inputs.arguments import ICustomArgParser, registerCustomArgParser


class PyGArgsParser(ICustomArgParser[BaseData]):
    """Takes tensors out of data objects and makes objects of them.

    The order: keys of a `Data` sorted; of a `HeteroData` first what belongs to the whole graph,
    then nodes, then edges, each as in its store.
    """

    def yieldTensors(self, struct: BaseData) -> Iterator[Tensor]:  # noqa: N802
        """The tensors of an object, always in the same order."""
        if isinstance(struct, HeteroData):
            for _, store in stores_of(struct):
                yield from (value for value in store.values() if isinstance(value, Tensor))
        elif isinstance(struct, Data):
            yield from (struct[key] for key in _tensor_keys(struct))
        else:
            raise ValueError(f"Unsupported data type: {type(struct)}")  # noqa: TRY004

    def reconstruct(
        self, original_structure: BaseData, tensor_iterator: Iterator[Tensor]
    ) -> BaseData:
        """An object like the original one with the next tensors, which may have other shapes."""
        if isinstance(original_structure, HeteroData):
            return self._hetero(original_structure, tensor_iterator)
        if not isinstance(original_structure, Data):
            raise ValueError(f"Unsupported data type: {type(original_structure)}")  # noqa: TRY004
        values = {key: next(tensor_iterator) for key in _tensor_keys(original_structure)}
        if not isinstance(original_structure, DataBatch):
            return Data(**values)
        made = Batch(_base_cls=Data, **values)
        made._num_graphs = original_structure._num_graphs
        made["num_nodes"] = original_structure.num_nodes
        made["num_edges"] = original_structure.num_edges
        return made

    @staticmethod
    def _hetero(original: HeteroData, tensors: Iterator[Tensor]) -> HeteroData:
        is_batch = isinstance(original, HeteroDataBatch)
        made = Batch(_base_cls=HeteroData) if is_batch else HeteroData()
        for key, source in stores_of(original):
            target = store_of(made, key)
            for name, value in source.items():
                target[name] = next(tensors) if isinstance(value, Tensor) else copy.copy(value)
        if is_batch:
            made._num_graphs = original._num_graphs
            for kind, store in original.node_items():
                made[kind].num_nodes = store.num_nodes
            for kind, store in original.edge_items():
                made[kind].num_edges = store.num_edges
        return made


def _tensor_keys(struct: Data) -> list[str]:
    return [key for key in sorted(struct.keys()) if isinstance(struct[key], Tensor)]


@call_once
def register_args_parsers() -> None:
    """Let models and loaders take data objects of PyG."""
    parser = PyGArgsParser()
    for kind in (BaseData, DataBatch, HeteroDataBatch):
        registerCustomArgParser(kind, parser)
