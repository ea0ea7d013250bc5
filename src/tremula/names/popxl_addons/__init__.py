"""popxl_addons: modules with named variables, transforms, optimisers, sessions, for PopXL.

Names only: the table of modules is in `_modules.py`, the code in tremula.frontends.popxl_addons.
"""

from tremula.base.libraries.redirects import add_modules as _add_modules
from tremula.base.libraries.redirects import names_of as _names_of
from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of

from ._modules import MODULES as _MODULES
from ._modules import NAMES as _NAMES

_modules = {n: m for n, m in _add_modules(__name__, _MODULES).items() if "." not in n}
# A function that has the name of a module stays a function.
_names = {**_modules, **_names_of(*_NAMES)}
_explain_arguments_of(_names, list(_names))
globals().update(_names)

__all__ = sorted(_names)  # noqa: PLE0605  names of the table
