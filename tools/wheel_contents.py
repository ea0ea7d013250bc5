"""What a wheel may contain, and what it must: every departure is a line of text."""

import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from divide import packages_of


def _folders_of(distribution: str) -> tuple[str, ...]:
    """The folders of a part of Tremula."""
    return tuple(name.replace(".", "/") + "/" for name in packages_of(distribution))


# The only places each wheel writes to, besides its metadata. Where one is inside another, it is the
# longer one's alone.
OWN = {
    "tremula": ("tremula/",),
    "tremula_garden": _folders_of("tremula-garden"),
    "tremula_frontends": _folders_of("tremula-frontends"),
    "tremula_names": ("tremula_names/", "tremula_names.pth"),
}
COMMANDS = {"tremula": ("tremula",), "tremula_garden": (), "tremula_frontends": ()}
MUST_HAVE = {
    "tremula": (
        "tremula/py.typed",
        "tremula/demo/data/digits.npz",
        "tremula/names/poptorch/__init__.py",
        "tremula/names/jax_plugins/tremula_ipu/__init__.py",
        "tremula/vision/page/main.js",
        "tremula/codelets/headers/poplar/HalfFloat.hpp",
    ),
    "tremula_garden": (
        "tremula/garden/models/datasets/data/more_digits.npz",
        "tremula/garden/applications/heat_stencil/manifest.toml",
        "tremula/garden/catalogue/page/main.js",
        "tremula/validate/data/published.csv",
    ),
    "tremula_frontends": ("tremula/frontends/jax/__init__.py",),
    "tremula_names": ("tremula_names.pth", "tremula_names/__init__.py"),
}
LICENCES = {
    "tremula": ("LICENSE", "LICENSES/MNIST.txt"),
    "tremula_garden": ("LICENSE", "LICENSES/hydronet-gnn.txt", "LICENSES/MNIST.txt"),
    "tremula_frontends": ("LICENSE",),
    "tremula_names": ("LICENSE",),
}
_UNWANTED = re.compile(r"(^|/)(tests?|__pycache__|node_modules)/|\.(pyc|so|orig|rej|swp)$")


def problems_of(wheel: Path) -> list[str]:
    """What is wrong with a wheel; nothing, one hopes."""
    name = wheel.name.split("-")[0]
    with zipfile.ZipFile(wheel) as archive:
        members = archive.namelist()
        info = next(m for m in members if m.endswith(".dist-info/METADATA")).rpartition("/")[0]
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = f"{info}/entry_points.txt"
        scripts = _scripts(archive.read(entry_points).decode()) if entry_points in members else []
    own = (*OWN[name], f"{info}/")
    wanted = [
        *MUST_HAVE[name],
        f"{info}/sboms/{name}.cdx.json",
        *(f"{info}/licenses/{licence}" for licence in LICENCES[name]),
    ]
    others = tuple(p for paths in OWN.values() for p in paths if p.startswith(own) and p not in own)
    problems = [
        f"{wheel.name} writes {m}" for m in members if not m.startswith(own) or m.startswith(others)
    ]
    problems += [f"{wheel.name} contains {m}" for m in members if _UNWANTED.search(m)]
    problems += [f"{wheel.name} lacks {m}" for m in wanted if m not in members]
    if name in COMMANDS and tuple(scripts) != COMMANDS[name]:
        problems.append(f"{wheel.name} has the commands {scripts}")
    fields = ("License-Expression:", "Project-URL:", "Classifier:", "Requires-Python:", "Keywords:")
    return problems + [f"{wheel.name}: no {f} in its metadata" for f in fields if f not in metadata]


def shared_files(wheels: Iterable[Path]) -> list[str]:
    """Files that more than one wheel writes."""
    counts: Counter[str] = Counter()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            counts.update(archive.namelist())
    return sorted(name for name, count in counts.items() if count > 1)


def _scripts(entry_points: str) -> list[str]:
    section = entry_points.partition("[console_scripts]\n")[2].partition("\n[")[0]
    return [line.partition(" = ")[0] for line in section.splitlines() if line]
