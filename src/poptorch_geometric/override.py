"""What of PyG is replaced during compilation."""

from tremula.frontends.geometric.overrides import FUNCTIONS, METHODS, Overrides, register_overrides

__all__ = ["FUNCTIONS", "METHODS", "Overrides", "register_overrides"]
