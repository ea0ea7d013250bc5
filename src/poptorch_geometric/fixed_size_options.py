"""FixedSizeOptions, under the name that scripts import."""

from tremula.frontends.geometric.fixed_size.options import FixedSizeOptions

__all__ = ["FixedSizeOptions"]
