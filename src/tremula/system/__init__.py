"""The system around the machine: controller, metrics, tools, launching, clusters.

The package bears the name of a function that was there before it: `tremula.system("pod64")` is a
machine. Once the package is loaded, Python puts it in that place, so it can be called, too.
"""

import sys
from types import ModuleType

from tremula.hardware import Chip, System
from tremula.hardware import system as named_system


class _CallableModule(ModuleType):
    __wrapped__ = staticmethod(named_system)

    def __call__(self, name: str | System, chip: str | Chip | None = None) -> System:
        return named_system(name, chip)


sys.modules[__name__].__class__ = _CallableModule
