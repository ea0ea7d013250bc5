"""The packages of a part of Tremula: folders of the repository's source, or of an sdist's."""

import tomllib
from pathlib import Path

from setuptools import setup

SOURCE = Path("src" if Path("src").is_dir() else "../src")
PARTS = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["tremula"]
FOLDERS = {name: SOURCE.joinpath(*name.split(".")) for name in PARTS["packages"]}


def modules_of(name: str, folder: Path) -> list[str]:
    """A package and all packages inside."""
    inside = (path.parent.relative_to(folder).parts for path in folder.rglob("__init__.py"))
    return sorted(".".join((name, *parts)) for parts in inside)


setup(
    packages=[p for name, folder in FOLDERS.items() for p in modules_of(name, folder)],
    package_dir={name: folder.as_posix() for name, folder in FOLDERS.items()},
)
