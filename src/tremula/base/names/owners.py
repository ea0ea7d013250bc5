"""Who else has a name: what Python would import without the hook, and its distribution."""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from tremula.base.names.table import FOLDER

if TYPE_CHECKING:
    from importlib.metadata import Distribution


def is_ours(file: str | None) -> bool:
    """Whether a file is in the folder of names."""
    return file is not None and Path(file).is_relative_to(FOLDER)


def spec_elsewhere(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """What Python would import for a name without Tremula; namespaces have no loader."""
    places = [entry for entry in (sys.path if path is None else path) if not is_ours(entry or ".")]
    for finder in sys.meta_path:
        if getattr(finder, "is_tremulas", False):
            continue
        if finder is PathFinder:
            spec = PathFinder.find_spec(name, places)
        else:
            spec = finder.find_spec(name, path)
        if spec is not None and not is_ours(spec.origin):
            return spec
    return None


def is_own_file(spec: ModuleSpec) -> bool:
    """Whether a module is in the folder of the running script, where one's own modules are."""
    return spec.origin is not None and _is_under(spec.origin, sys.path[0] or os.getcwd())


def owner_of(spec: ModuleSpec) -> str:
    """The distribution that a module belongs to, such as `poptorch 3.3.0`, or the place of it."""
    from importlib.metadata import distributions  # lazy: slow to import, and only errors need it

    origin = spec.origin or next(iter(spec.submodule_search_locations or ()), spec.name)
    for distribution in distributions():
        if _has_file(distribution, origin, spec.name):
            return f"the distribution {distribution.metadata['Name']} {distribution.version}"
    return f"{origin}, which belongs to no distribution"


def _has_file(distribution: "Distribution", file: str, module: str) -> bool:
    path = Path(file).resolve()
    return any(
        Path(str(distribution.locate_file(record))).resolve() == path
        for record in _records_like(distribution.files or (), module)
    )


def _records_like(files: Iterable[os.PathLike[str]], module: str) -> Iterable[os.PathLike[str]]:
    """Files of a distribution under the module's path: resolving all of them would take seconds."""
    start = module.replace(".", "/")
    return (file for file in files if os.fspath(file).startswith(start))


def _is_under(file: str, folder: str) -> bool:
    """Whether a module or package is directly in a folder."""
    inner = Path(file).resolve().relative_to(place) if _has(place := Path(folder), file) else None
    return inner is not None and len(inner.parts) <= 2 and "site-packages" not in inner.parts


def _has(folder: Path, file: str) -> bool:
    return Path(file).resolve().is_relative_to(folder.resolve())
