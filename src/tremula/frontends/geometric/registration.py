"""Importing this lets PopTorch take graphs of PyTorch Geometric: parsers, fallbacks, overrides."""

from tremula.frontends.geometric.args_parser import register_args_parsers
from tremula.frontends.geometric.overrides import register_overrides
from tremula.frontends.geometric.pyg_lib_fallbacks import install_fallbacks

register_args_parsers()
install_fallbacks()
register_overrides()
