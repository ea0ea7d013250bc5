"""`tremula fuzz`: random cases of every kind against independent oracles, from a checkout.

The fuzzer is the folder `tools/fuzz` of a checkout; `docs/fuzzing.md` describes it.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import tremula
from tremula.base.errors import InvalidOption
from tremula.commands.bench import checkout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    try:
        load_fuzzer(checkout()).add_arguments(parser)
    except InvalidOption:  # `--help` works from a wheel, too
        parser.add_argument("rest", nargs=argparse.REMAINDER, help="needs a checkout")


def run(args: argparse.Namespace) -> int:
    return load_fuzzer(checkout()).run(args)


def load_fuzzer(root: Path) -> ModuleType:
    """The module `tools.fuzz.command` of a checkout, importable from child processes too."""
    if not (root / "tools" / "fuzz" / "command.py").is_file():
        raise InvalidOption(
            "`tremula fuzz` needs the folder `tools` of a checkout, and this Tremula is "
            f"installed without one (in {Path(tremula.__file__).parent}).",
            hint="git clone the repository, then `pip install --editable '.[dev]'` in it",
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(root) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *paths])
    return import_module("tools.fuzz.command")
