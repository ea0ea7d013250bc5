"""The one place where a layer calls a lower one: by name, and only on request."""

import sys
from importlib import import_module
from types import ModuleType


def vision(module: str) -> ModuleType:
    """A module of tremula.vision: an engine needs it to leave a report, or to give one to pva."""
    return import_module(f"tremula.vision.{module}")


# Libraries whose models need a separate front end, and the module that registers it.
_FRONT_END_OF = {"torch_geometric": "tremula.frontends.geometric.registration"}


def load_front_ends_of_libraries() -> None:
    """Load what models of a library need to be compiled, where a script has loaded the library."""
    for library, module in _FRONT_END_OF.items():
        if library in sys.modules and module not in sys.modules:
            import_module(module)
