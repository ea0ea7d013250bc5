"""Changes of modules that are made when they are imported, which may be later or never."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Change = Callable[[ModuleType], None]


class WhenImported(importlib.abc.MetaPathFinder):
    """Calls functions with modules, right after these are imported; `remove` forgets the others."""

    def __init__(self) -> None:
        self._waiting: dict[str, Change] = {}

    def add(self, name: str, change: Change) -> None:
        """Call `change(module)` now, if it is imported already, or as soon as it is."""
        if name in sys.modules:
            change(sys.modules[name])
            return
        self._waiting[name] = change
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait for nothing any more."""
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        change = self._waiting.pop(fullname, None)
        if change is None:
            return None
        if not self._waiting:
            self.remove()
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec
