"""PopTorch Geometric: PyTorch Geometric on an IPU, or on Tremula's model of one."""

from tremula.base import version as _version
from tremula.base.libraries.redirects import add_modules as _add_modules
from tremula.frontends.geometric import registration as _registration  # noqa: F401 - registers
from tremula.frontends.geometric.args_parser import PyGArgsParser
from tremula.frontends.geometric.args_parser import (
    register_args_parsers as registerCustomArgParsers,  # noqa: N812 — PopTorch Geometric names
)
from tremula.frontends.geometric.common import call_once
from tremula.frontends.geometric.fixed_size.collate import make_exclude_keys
from tremula.frontends.geometric.fixed_size.options import (
    FixedSizeOptions,
    FixedSizeStrategy,
    OverSizeStrategy,
)
from tremula.frontends.geometric.loaders.poptorch import FixedSizeDataLoader
from tremula.frontends.geometric.overrides import (
    register_overrides as registerOverrideManager,  # noqa: N812
)
from tremula.frontends.geometric.training import TrainingStepper, set_aggregation_dim_size

from ._modules import MODULES as _MODULES

__version__ = f"3.4.0-tremula{_version.VERSION}"

__all__ = [
    "FixedSizeDataLoader",
    "FixedSizeOptions",
    "FixedSizeStrategy",
    "OverSizeStrategy",
    "PyGArgsParser",
    "TrainingStepper",
    "__version__",
    "call_once",
    "make_exclude_keys",
    "registerCustomArgParsers",
    "registerOverrideManager",
    "set_aggregation_dim_size",
]

for _name, _module in _add_modules(__name__, _MODULES).items():
    if "." not in _name:
        globals()[_name] = _module
