"""Which versions of other libraries Tremula works with, and the error where one is outside.

The table is the only place for ranges and their reasons: `pyproject.toml` repeats the ranges for
pip and `docs/versions.md` shows them; tests compare both. A range ends where we have not tested,
because each of these libraries moves internals that a front end uses.
"""

import os
import re
from dataclasses import dataclass
from importlib import metadata

from tremula.base.version import ANY_VERSION, FIRST_PYTHON, LAST_PYTHON


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Versions from `floor` on and before `ceiling`; no ceiling: any later one."""

    title: str
    package: str  # its name for pip
    floor: tuple[int, ...]
    ceiling: tuple[int, ...] | None
    why_floor: str
    why_ceiling: str = "–"

    @property
    def requirement(self) -> str:
        """What one would type behind `pip install`."""
        below = f",<{dotted(self.ceiling)}" if self.ceiling else ""
        return f"{self.package}>={dotted(self.floor)}{below}"

    def is_supported(self, version: str) -> bool:
        """Whether a version is in the range; true if it has no numbers to compare."""
        numbers = leading_numbers(version)
        if not numbers:
            return True
        return self.floor <= numbers and (self.ceiling is None or numbers < self.ceiling)


# By the module that a front end imports.
LIBRARIES: dict[str, VersionRange] = {
    "numpy": VersionRange(
        title="NumPy", package="numpy", floor=(2, 1), ceiling=None,
        why_floor="the first for Python 3.13",
    ),
    "numba": VersionRange(
        title="Numba", package="numba", floor=(0, 61), ceiling=None,
        why_floor="the first for NumPy 2.1",
    ),
    "torch": VersionRange(
        title="PyTorch", package="torch", floor=(2, 9), ceiling=(2, 14),
        why_floor="the oldest that was tested",
        why_ceiling="capture uses internals that each minor version moves",
    ),
    "torch_geometric": VersionRange(
        title="PyTorch Geometric", package="torch_geometric", floor=(2, 7), ceiling=(2, 9),
        why_floor="the oldest that was tested",
        why_ceiling="layers are listed one by one",
    ),
    "jax": VersionRange(
        title="JAX", package="jax", floor=(0, 9), ceiling=(0, 12),
        why_floor="primitives and plug-in interface; the oldest that was tested",
        why_ceiling="primitives change with each minor version",
    ),
    "keras": VersionRange(
        title="Keras", package="keras", floor=(3, 12), ceiling=(3, 16),
        why_floor="its PyTorch backend as the front end uses it",
        why_ceiling="steps of training follow its Trainer",
    ),
    "transformers": VersionRange(
        title="transformers", package="transformers", floor=(5,), ceiling=(6,),
        why_floor="hooks of its Trainer", why_ceiling="hooks of its Trainer",
    ),
    "onnx": VersionRange(
        title="onnx", package="onnx", floor=(1, 20), ceiling=(1, 24),
        why_floor="operator set 25", why_ceiling="operators are listed one by one",
    ),
}  # fmt: skip


def dotted(numbers: tuple[int, ...] | None) -> str:
    return ".".join(map(str, numbers or ()))


def leading_numbers(version: str) -> tuple[int, ...]:
    """2.13.0+cpu is (2, 13, 0), and 2.14.0a0 is (2, 14, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def installed_version(module: str) -> str:
    """The version of the package that a module is in; empty if it has no metadata."""
    package = LIBRARIES[module].package if module in LIBRARIES else module
    for name in (package, package.replace("_", "-")):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def unsupported(module: str) -> str:
    """What is wrong with the installed version of a module; empty if nothing is."""
    known = LIBRARIES.get(module)
    if known is None or os.environ.get(ANY_VERSION):
        return ""
    version = installed_version(module)
    if known.is_supported(version):
        return ""
    return f"{known.title} {version} is installed, but Tremula works with {_range_in_words(known)}"


def _range_in_words(known: VersionRange) -> str:
    if known.ceiling is None:
        return f"{dotted(known.floor)} and newer"
    return f"{dotted(known.floor)} and newer, before {dotted(known.ceiling)}"


def remedy(module: str) -> str:
    """How to get a version that works, or to try the one that is there."""
    return f"pip install '{LIBRARIES[module].requirement}', or set {ANY_VERSION}=1 to try it"


def versions_markdown() -> str:
    """The table of docs/versions.md."""
    rows = [
        "| what | versions | reason of the floor | reason of the ceiling |",
        "|---|---|---|---|",
    ]
    rows.append(
        f"| Python | {dotted(FIRST_PYTHON)} to {dotted(LAST_PYTHON)} |"
        " `tomllib`, exception groups | Numba compiles bytecode: it has to know a Python |"
    )
    for one in LIBRARIES.values():
        below = f", before {dotted(one.ceiling)}" if one.ceiling else ""
        versions = f"{dotted(one.floor)} and newer{below}"
        rows.append(f"| {one.title} | {versions} | {one.why_floor} | {one.why_ceiling} |")
    return "\n".join(rows)
