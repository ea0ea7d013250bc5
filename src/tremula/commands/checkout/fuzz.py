"""`tremula fuzz`: random cases of every kind against independent oracles, from a checkout.

The fuzzer is the folder `tools/fuzz` of a checkout; `docs/fuzzing.md` describes it.
"""

import argparse
from pathlib import Path
from types import ModuleType

from tremula.base.errors import InvalidOption
from tremula.commands.checkout.folder import checkout, import_from_checkout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    try:
        load_fuzzer(checkout()).add_arguments(parser)
    except InvalidOption:  # `--help` works from a wheel, too
        parser.add_argument("rest", nargs=argparse.REMAINDER, help="needs a checkout")


def run(args: argparse.Namespace) -> int:
    return load_fuzzer(checkout()).run(args)


def load_fuzzer(root: Path) -> ModuleType:
    """The module `tools.fuzz.command` of a checkout."""
    return import_from_checkout(root, "tools.fuzz.command", "fuzz")
