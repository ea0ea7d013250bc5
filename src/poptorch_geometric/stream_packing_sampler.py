"""The sampler that packs graphs as they come."""

from tremula.frontends.geometric.packing.stream import StreamPackingSampler

__all__ = ["StreamPackingSampler"]
