"""Names and arguments of TessellateIPU, module by module, as its public sources have them.

data/tessellate_ipu.txt lists them: a module, below it what it imports from others, functions with
their arguments, classes with their members.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import tessellate_ipu

LIST = Path(__file__).with_name("data") / "tessellate_ipu.txt"
# What is left out: files of C++ vertices, which Tremula does not have, and lowerings for a fork of
# JAX, which Tremula's front end replaces.
LEFT_OUT = re.compile(r"get_\w+_gp_filename|\w+_mlir_lowering_ipu|external_libs")


def listed() -> Iterator[tuple[str, str]]:
    """(module, line below it)."""
    module = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            yield module, line
        else:
            module = line.split(":")[0].strip()


def lacking(module: str, line: str, owner: list) -> list[str]:
    """Names and arguments of a line that the module has not."""
    found = import_module(module)
    if line.startswith("  from "):
        names = line.split(": ", 1)[1].split(", ")
        return [f"{module}.{name}" for name in names if not hasattr(found, name)]
    name, arguments = re.match(r"\s+(?:class |@)?(\w+)(?:\((.*)\))?", line).groups()
    if line.startswith("      "):
        members = getattr(owner[-1], "__dataclass_fields__", {})
        return [] if hasattr(owner[-1], name) or name in members else [f"{owner[-1]}.{name}"]
    if not hasattr(found, name):
        return [f"{module}.{name}"]
    value = getattr(found, name)
    if line.startswith("  class "):
        owner.append(value)
    elif callable(value):
        wanted = [one.split("=")[0] for one in (arguments or "").split(", ")]
        has = inspect.signature(value).parameters
        plain = [one for one in wanted if one.isidentifier() and one not in has]
        return [f"{module}.{name}({one})" for one in plain]
    return []


def test_every_listed_name_is_there():
    """Every module, name and argument of the list is there, apart from the C++ side."""
    owner: list = []
    missing = [name for row in listed() for name in lacking(*row, owner)]
    assert not [name for name in missing if not LEFT_OUT.search(name)]


def test_unknown_names_get_a_suggestion():
    """A name that a module has not is an error with the nearest one."""
    with pytest.raises(AttributeError, match="tile_put_sharded"):
        _ = tessellate_ipu.core.tile_array.tile_put_shard
    with pytest.raises(ModuleNotFoundError):
        import_module("tessellate_ipu.core.tile_arrays")
