"""The checkout that the package runs from, and the import of what only a checkout has."""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import tremula
from tremula.base.errors import InvalidOption


def checkout() -> Path:
    """The folder of the checkout that this package runs from: `src/tremula` is inside it."""
    return Path(tremula.__file__).resolve().parents[2]


def import_from_checkout(root: Path, module: str, command: str) -> ModuleType:
    """A module of a checkout that is not installed, importable from child processes too."""
    file = root.joinpath(*module.split("."))
    if not (file.with_suffix(".py").is_file() or (file / "__init__.py").is_file()):
        raise InvalidOption(
            f"`tremula {command}` needs the folder `{module.partition('.')[0]}` of a checkout, and "
            f"this Tremula is installed without one (in {Path(tremula.__file__).parent}).",
            hint="git clone the repository, then `pip install --editable '.[dev]'` in it",
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(root) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *paths])
    return import_module(module)
