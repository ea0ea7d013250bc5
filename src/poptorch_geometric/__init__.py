"""PopTorch Geometric: PyTorch Geometric on an IPU, or on Tremula's model of one."""

from tremula.base import version as _version
from tremula.frontends.geometric.args_parser import PyGArgsParser, register_args_parsers
from tremula.frontends.geometric.fixed_size.collate import make_exclude_keys
from tremula.frontends.geometric.fixed_size.options import (
    FixedSizeOptions,
    FixedSizeStrategy,
    OverSizeStrategy,
)
from tremula.frontends.geometric.loaders.poptorch import FixedSizeDataLoader
from tremula.frontends.geometric.overrides import register_overrides
from tremula.frontends.geometric.pyg_lib_fallbacks import install_fallbacks
from tremula.frontends.geometric.training import TrainingStepper, set_aggregation_dim_size

__version__ = f"3.4.0-tremula{_version.VERSION}"

__all__ = [
    "FixedSizeDataLoader",
    "FixedSizeOptions",
    "FixedSizeStrategy",
    "OverSizeStrategy",
    "PyGArgsParser",
    "TrainingStepper",
    "__version__",
    "make_exclude_keys",
    "set_aggregation_dim_size",
]

register_args_parsers()
install_fallbacks()
register_overrides()
