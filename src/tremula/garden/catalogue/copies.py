"""A copy of an application as the start of your own."""

import keyword
import shutil
from pathlib import Path

from tremula.base.errors import InvalidOption
from tremula.base.storage.atomic_file import write_text
from tremula.garden.catalogue.figures import FIGURES
from tremula.garden.catalogue.manifest import Application

_LEFT_OUT = shutil.ignore_patterns("__pycache__", FIGURES)


def copy_application(other: Application, name: str, parent: Path) -> Path:
    """Copy a folder; its files import each other from there, everything else from the package."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidOption(
            f"{name!r} cannot name an application.",
            hint="use letters, digits and underscores, as Python's packages do",
        )
    folder = parent / name
    if folder.exists():
        raise InvalidOption(f"{folder} exists already.", hint="choose another name")
    shutil.copytree(other.folder, folder, ignore=_LEFT_OUT)
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        write_text(path, text.replace(_package(other), name))
    return folder


def _package(application: Application) -> str:
    """What the files of an application call their package."""
    if application.folder.parent.name == "applications":
        return f"tremula.garden.applications.{application.name}"
    return application.name
