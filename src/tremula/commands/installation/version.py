"""`tremula version`: the versions that matter in a bug report."""

import argparse
import platform
from importlib.metadata import version

from tremula.base.version import VERSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(args: argparse.Namespace) -> int:
    print(f"tremula {VERSION}")
    print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("numpy", "numba", "llvmlite"):
        print(f"{package} {version(package)}")
    return 0
