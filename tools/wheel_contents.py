"""What a wheel may contain, and what it must: every departure is a line of text."""

import re
import zipfile
from pathlib import Path

# The only places each wheel writes to, besides its metadata.
OWN = {"tremula": ("tremula/",), "tremula_names": ("tremula_names/", "tremula_names.pth")}
COMMANDS = {"tremula": ("tremula",)}
MUST_HAVE = {
    "tremula": (
        "tremula/py.typed",
        "tremula/names/poptorch/__init__.py",
        "tremula/names/jax_plugins/tremula_ipu/__init__.py",
        "tremula/vision/page/main.js",
        "tremula/codelets/headers/poplar/HalfFloat.hpp",
    ),
    "tremula_names": ("tremula_names.pth", "tremula_names/__init__.py"),
}
LICENCES = {
    "tremula": ("LICENSE", "LICENSES/hydronet-gnn.txt", "LICENSES/MNIST.txt"),
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
        scripts = _scripts(archive.read(f"{info}/entry_points.txt").decode())
    own = (*OWN[name], f"{info}/")
    wanted = [
        *MUST_HAVE[name],
        f"{info}/sboms/{name}.cdx.json",
        *(f"{info}/licenses/{licence}" for licence in LICENCES[name]),
    ]
    problems = [f"{wheel.name} writes {m}" for m in members if not m.startswith(own)]
    problems += [f"{wheel.name} contains {m}" for m in members if _UNWANTED.search(m)]
    problems += [f"{wheel.name} lacks {m}" for m in wanted if m not in members]
    if name in COMMANDS and tuple(scripts) != COMMANDS[name]:
        problems.append(f"{wheel.name} has the commands {scripts}")
    fields = ("License-Expression:", "Project-URL:", "Classifier:", "Requires-Python:", "Keywords:")
    return problems + [f"{wheel.name}: no {f} in its metadata" for f in fields if f not in metadata]


def _scripts(entry_points: str) -> list[str]:
    section = entry_points.partition("[console_scripts]\n")[2].partition("\n[")[0]
    return [line.partition(" = ")[0] for line in section.splitlines() if line]
