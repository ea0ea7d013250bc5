"""Divides Tremula into the distributions of a release: which packages and extras go where.

A checkout is one project with everything. For a release `tremula` leaves out the packages of
`tremula/base/libraries/parts.py`, and its extras require the distributions that have them.
"""

import re
import shutil
import tomllib
from pathlib import Path

from tremula.base.libraries.parts import PARTS, parts_of
from tremula.base.version import VERSION

_EXTRAS = "[project.optional-dependencies]\n"
_FOUND = '[tool.setuptools.packages.find]\nwhere = ["src"]\n'


def packages_of(distribution: str) -> list[str]:
    """The packages of ours that a distribution other than `tremula` installs."""
    return sorted(name for name, part in PARTS.items() if part.distribution == distribution)


def requirements_of(extra: str) -> list[str]:
    """What an extra of a released `tremula` requires of our own distributions."""
    return sorted({f"{PARTS[name].distribution}=={VERSION}" for name in parts_of(extra)})


def divided(pyproject: str) -> str:
    """The project `tremula` of a release, from that of a checkout."""
    if pyproject.count(_EXTRAS) != 1 or pyproject.count(_FOUND) != 1:
        raise ValueError("pyproject.toml states its extras and packages in another form.")
    excluded = "".join(f'    "{name}",\n    "{name}.*",\n' for name in sorted(PARTS))
    pyproject = pyproject.replace(_FOUND, f"{_FOUND}exclude = [\n{excluded}]\n")
    before, _, rest = pyproject.partition(_EXTRAS)
    extras, end, rest = rest.partition("\n[")
    return before + _EXTRAS + _with_parts(extras) + end + rest


def _with_parts(extras: str) -> str:
    """The lines of all extras, each with the parts it requires as its first elements."""

    def required(match: re.Match) -> str:
        return match[0] + "".join(f'"{text}", ' for text in requirements_of(match[1]))

    return re.sub(r"^(\w+) = \[", required, extras, flags=re.MULTILINE)


def divide(tree: Path) -> None:
    """Turn a copy of the repository into the projects of a release, each with its packages."""
    project = tree / "pyproject.toml"
    project.write_text(divided(project.read_text(encoding="utf-8")), encoding="utf-8")
    for part in PARTS.values():
        folder = tree / part.distribution.removeprefix("tremula-")
        name = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert name["name"] == part.distribution, f"{folder} is the project {name['name']}"
    for package, part in PARTS.items():
        path = Path("src", *package.split("."))
        shutil.copytree(tree / path, tree / part.distribution.removeprefix("tremula-") / path)
