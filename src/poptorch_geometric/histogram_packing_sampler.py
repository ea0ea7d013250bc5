"""The sampler that plans packs from the sizes of all graphs."""

from tremula.frontends.geometric.packing.histogram import HistogramPackingSampler

__all__ = ["HistogramPackingSampler"]
