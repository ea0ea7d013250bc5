"""`tremula doctor`: what is installed, what works, and how to repair what does not."""

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tremula.base.errors import PoplarError
from tremula.base.libraries.parts import PARTS, install_hint, is_installed
from tremula.base.library_versions import installed_version, remedy, unsupported
from tremula.base.names import NAMES
from tremula.base.names.owners import is_ours, owner_of, spec_elsewhere
from tremula.base.requirements import EXTRAS, missing_packages
from tremula.base.storage.cache_dir import cache_dir
from tremula.base.version import VERSION
from tremula.commands.progress import with_progress

OK, ABSENT, BROKEN = "ok", "absent", "broken"
_MARKS = {OK: "✓", ABSENT: "–", BROKEN: "✗"}
_WIDTH = 30  # of the column of parts
_MIN_FREE_BYTES = 1 << 30  # of the cache's disk: compiled kernels and executables of a day's work
# What each extra is for, as people call it, and the module that shows whether it works.
_USES = {
    "torch": ("PopTorch, PopDist", "tremula.frontends.poptorch.executor.entry"),
    "garden": ("the garden, tremula validate", "tremula.garden.catalogue.catalogue"),
    "geometric": ("PyTorch Geometric", "tremula.frontends.geometric.registration"),
    "onnx": ("ONNX models, PopART", "tremula.frontends.popart.sessions.session"),
    "popxl": ("PopXL and its add-ons", "tremula.frontends.popxl.run.session"),
    "jax": ("JAX, TessellateIPU", "tremula.frontends.jax.backend"),
    "dft": ("density functional theory", "pyscf"),
    "keras": ("Keras, programs for TensorFlow", "tremula.frontends.keras.ipu"),
    "optimum": ("optimum.graphcore", "tremula.frontends.optimum.ipu_config"),
    "serve": ("tremula serve", "tremula.serving.server"),
    "fit": ("tremula fit", "scipy"),
    "sweep": ("tremula sweep on a cluster", "distributed"),
    "system": ("tremula vipu-server", "fastapi"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line: whether a part works, what is there, and what to do if it does not."""

    section: str
    part: str
    state: str
    what: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(args: argparse.Namespace) -> int:
    """Exit code 1 if something is broken; a front end that is not installed is not."""
    every = with_progress("checking", (check for section in SECTIONS for check in section()), 0)
    checks = list(every if args.json else _printed(every))
    n_broken = sum(check.state == BROKEN for check in checks)
    if args.json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        print(f"\n{n_broken} broken" if n_broken else "\nall that is installed works")
    return 1 if n_broken else 0


def _printed(checks: Iterable[Check]) -> Iterator[Check]:
    """Pass checks on, and print each as soon as it is known: loading libraries takes a while."""
    section = ""
    for check in checks:
        if check.section != section:
            print(("\n" if section else "") + check.section)
            section = check.section
        print(f"  {_MARKS[check.state]} {check.part:<{_WIDTH}}  {check.what}", flush=True)
        if check.remedy:
            print(f"    {'':<{_WIDTH}}  try: {check.remedy}", flush=True)
        yield check


# -- sections --------------------------------------------------------------------------------------


def tremula_itself() -> Iterator[Check]:
    section = "Tremula"
    place = Path(__file__).resolve().parents[2]
    yield Check(section, "tremula", OK, f"{VERSION} in {place}")
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    yield Check(section, "Python", OK, f"{platform.python_version()} ({sys.executable}), {where}")
    for package in ("numpy", "numba"):
        yield _library(section, package, f"pip install --force-reinstall {package}")
    for distribution in sorted({part.distribution for part in PARTS.values()}):
        yield _part(section, distribution)


def _part(section: str, distribution: str) -> Check:
    """A distribution of Tremula's parts: it works with its own version only."""
    packages = [name for name, part in PARTS.items() if part.distribution == distribution]
    remedy = f"pip install {distribution}=={VERSION}"
    if not all(map(is_installed, packages)):
        return Check(section, distribution, ABSENT, "not installed", remedy)
    version = installed_version(distribution)
    if version not in {"", VERSION}:
        return Check(section, distribution, BROKEN, f"{version}, of another version", remedy)
    return Check(section, distribution, OK, version or "installed with tremula")


def front_ends() -> Iterator[Check]:
    """Each extra: its libraries with their versions, or how to install it."""
    section = "Front ends and extras"
    for extra, modules in EXTRAS.items():
        use, module = _USES.get(extra, (extra, ""))
        missing = missing_packages(extra)
        if missing:
            what = f"not installed: {', '.join(missing)}"
            yield Check(section, use, ABSENT, what, install_hint(extra))
            continue
        shown = ", ".join(f"{name} {_version(name)}" for name in modules) or "installed"
        outside = [name for name in modules if unsupported(name)]
        wrong = list(map(unsupported, outside)) or _failure(module)
        if wrong:
            what = f"{shown}: {'; '.join(wrong)}"
            hint = remedy(outside[0]) if outside else install_hint(extra)
            yield Check(section, use, BROKEN, what, hint)
        else:
            yield Check(section, use, OK, shown)


def _failure(module: str) -> list[str]:
    """What the import of a module raises, in one line; nothing if it works."""
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
        return [f"does not load: {type(error).__name__}: {str(error).partition(chr(10))[0]}"]
    return []


def names() -> Iterator[Check]:
    """Which names scripts can import plainly, and which belong to others."""
    section = "Names (docs/names.md)"
    has_names = find_spec("tremula_names") is not None
    plain = "installed" if has_names else "not installed: run scripts with `tremula run script.py`"
    remedy = "" if has_names else "pip install tremula-names, for plain `import poptorch`"
    yield Check(section, "tremula-names", OK if has_names else ABSENT, plain, remedy)
    for row in NAMES:
        parent = row.name.rpartition(".")[0]
        if parent:
            continue  # its parent is shared
        spec = spec_elsewhere(row.name, None)
        if spec is not None and spec.loader is not None and not is_ours(spec.origin):
            what = f"belongs to {owner_of(spec)}; with `tremula run` the name is Tremula's"
            yield Check(section, row.name, ABSENT, what)


def gpu() -> Iterator[Check]:
    section = "GPU"
    if find_spec("torch") is None:
        yield Check(section, "CUDA", ABSENT, "needs PyTorch", install_hint("torch"))
        return
    if _failure("torch"):
        yield Check(section, "CUDA", ABSENT, "PyTorch does not load")
        return
    import torch

    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            what = f"{device.name}, {device.total_memory / 2**30:.0f} GiB"
            yield Check(section, f"cuda:{index}", OK, what)
    elif torch.version.cuda is not None and shutil.which("nvidia-smi"):
        remedy = "nvidia-smi: the driver is older than PyTorch's CUDA, or hides the devices"
        yield Check(section, "CUDA", BROKEN, f"PyTorch for CUDA {torch.version.cuda}", remedy)
    else:
        yield Check(section, "CUDA", ABSENT, "no GPU: models run on the processor")


def compilers() -> Iterator[Check]:
    section = "Compilers"
    from tremula.codelets.cpp.toolchain import find_compiler

    try:
        compiler = find_compiler()
    except (PoplarError, OSError) as error:
        remedy = getattr(error, "hint", "") or "apt-get install g++"
        what = f"none, C++ codelets and fast loops need it: {str(error).splitlines()[0]}"
        yield Check(section, "g++", ABSENT, what, remedy)
        return
    done = compiler.run(["-x", "c++", "-std=c++17", "-fsyntax-only", "-"], "#include <cmath>\n")
    state = OK if done.returncode == 0 else BROKEN
    what = f"{compiler.identity.splitlines()[0]} ({compiler.path})"
    remedy = "" if state == OK else "apt-get install g++: its headers are missing"
    yield Check(section, "g++", state, what, remedy)


def caches() -> Iterator[Check]:
    section = "Caches"
    folder = cache_dir()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(place, os.W_OK):
        remedy = f"chmod u+w {place}, or TREMULA_CACHE_DIR=/another/folder"
        yield Check(section, str(folder), BROKEN, "cannot be written", remedy)
        return
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(place).free
    what = f"{n_bytes / 2**20:,.0f} MiB of compiled code, {free / 2**30:,.0f} GiB free"
    if free < _MIN_FREE_BYTES:
        yield Check(section, str(folder), BROKEN, what, "free some space, or TREMULA_CACHE_DIR=…")
    else:
        yield Check(section, str(folder), OK, what)


SECTIONS: tuple[Callable[[], Iterator[Check]], ...] = (
    tremula_itself,
    front_ends,
    names,
    gpu,
    compilers,
    caches,
)


# -- versions --------------------------------------------------------------------------------------


def _library(section: str, package: str, remedy: str) -> Check:
    wrong = _failure(package)
    if wrong:
        return Check(section, package, BROKEN, wrong[0], remedy)
    return Check(section, package, OK, _version(package))


def _version(module: str) -> str:
    return installed_version(module) or "(unknown version)"
