"""Maskers: how models leave out padding without knowing how a loader made it."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

Entries = Tensor | tuple[Tensor, ...]
Layer = Callable[..., Tensor]


class Masker(ABC):
    """What a loader that pads offers to models: entries of padding taken out or made harmless."""

    @abstractmethod
    def node_masker(self, node_entries: Entries, mask: Tensor | None = None) -> Entries:
        """Entries of nodes without those of padding."""

    @abstractmethod
    def edge_masker(self, edge_entries: Entries, mask: Tensor | None = None) -> Entries:
        """Entries of edges without those of padding."""

    @abstractmethod
    def graph_masker(self, graph_entries: Entries, mask: Tensor | None = None) -> Entries:
        """Entries of graphs without those of padding."""


class NoMasker(Masker):
    """Leaves everything as it is, for data that are not padded."""

    def node_masker(self, node_entries: Entries, mask: Tensor | None = None) -> Entries:  # noqa: ARG002
        return node_entries

    def edge_masker(self, edge_entries: Entries, mask: Tensor | None = None) -> Entries:  # noqa: ARG002
        return edge_entries

    def graph_masker(self, graph_entries: Entries, mask: Tensor | None = None) -> Entries:  # noqa: ARG002
        return graph_entries


class LayerMasker(ABC):
    """A masker around layers: each gets entries that a masker has seen first."""

    def __init__(self, masker: Masker):
        self.masker = masker

    @abstractmethod
    def node_masker(self, layer: Layer) -> Layer:
        """A layer over nodes, masked."""
        return _masked(layer, self.masker.node_masker)

    @abstractmethod
    def edge_masker(self, layer: Layer) -> Layer:
        """A layer over edges, masked."""
        return _masked(layer, self.masker.edge_masker)

    @abstractmethod
    def graph_masker(self, layer: Layer) -> Layer:
        """A layer over graphs, masked."""
        return _masked(layer, self.masker.graph_masker)


class PreLayerMasker(LayerMasker):
    """Masks what goes into a layer."""

    def node_masker(self, layer: Layer) -> Layer:
        return super().node_masker(layer)

    def edge_masker(self, layer: Layer) -> Layer:
        return super().edge_masker(layer)

    def graph_masker(self, layer: Layer) -> Layer:
        return super().graph_masker(layer)


def _masked(layer: Layer, mask_entries: Callable[..., Entries]) -> Layer:
    def masked_layer(*args: Tensor, mask: Tensor | None = None) -> Tensor:
        return layer(*mask_entries(args, mask=mask))

    return masked_layer
