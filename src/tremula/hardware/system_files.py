"""Your own systems as TOML files: a base system and its changes, or every constant; and a chip."""

import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from tremula.base.errors import FileLoadError, InvalidMachineModel, suggest
from tremula.base.storage import strict_toml
from tremula.base.storage.atomic_file import write_text
from tremula.hardware.chip_files import (
    chip_from_table,
    chip_to_toml,
    fact_from_toml,
    fact_lines,
    read_toml_file,
    toml_value,
)
from tremula.hardware.chip_model import Chip
from tremula.hardware.constant_records import Fact, derived, quantities
from tremula.hardware.known_chips import chip as known_chip
from tremula.hardware.known_systems import system as known_system
from tremula.hardware.system_model import System, make_system

_OTHER_KEYS = ("name", "base", "chip")


def load_system(path: str | os.PathLike[str]) -> System:
    """Read a system from a TOML file.

    `base = "pod64"` with changed constants, or every constant without a base. `chip` is the name
    of a chip, or a table as a chip's file has. The number of machines follows that of chips.
    """
    return system_from_toml(read_toml_file(Path(path), "system"), origin=str(path))


@lru_cache(maxsize=64)  # every engine asks for its executable's system
def system_from_toml(text: str, origin: str = "TOML text", chip: Chip | None = None) -> System:
    """A system from the text of a TOML file; without a chip in it, of `chip`."""
    try:
        table = strict_toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileLoadError(
            f"{origin} is no TOML: {error}", hint="write lines such as  n_ipus = 1024"
        ) from error
    try:
        return _system_from_table(table, Path(origin).stem, chip)
    except InvalidMachineModel as error:
        raise InvalidMachineModel(f"{origin}: {error.what}", hint=error.hint) from error


def system_to_toml(system: System, *, with_chip: bool = True) -> str:
    """A self-contained TOML file of a system; `system_from_toml` returns the same one."""
    lines = [f"name = {toml_value(system.name)}", "", *fact_lines(system.facts)]
    chip = f"\n[chip]\n{chip_to_toml(system.chip)}" if with_chip else ""
    return "\n".join(lines) + "\n" + chip


def save_system(system: System, path: str | os.PathLike[str]) -> None:
    """Write a system, and its chip, as a TOML file."""
    write_text(path, system_to_toml(system))


def _system_from_table(table: Mapping[str, object], default_name: str, chip: Chip | None) -> System:
    known = [*_OTHER_KEYS, *quantities(System)]
    for key in table:
        if key not in known:
            raise InvalidMachineModel(f"unknown key {key!r}.", hint=suggest(key, known))
    name, base = str(table.get("name", default_name)), table.get("base")
    chip = _chip_of(table.get("chip"), name) or chip
    constants = {key: value for key, value in table.items() if key not in _OTHER_KEYS}
    if base is None:
        facts = {k: fact_from_toml(k, v, f"given for {name}") for k, v in constants.items()}
        return make_system(name, chip or known_chip("bow"), facts | _machines(facts, {}))
    start = known_system(str(base), chip)
    source = f"changed from {start.name}"
    facts = {k: fact_from_toml(k, v, source) for k, v in constants.items()}
    changes = facts | _machines(facts, start.facts)
    return start.replace(name=name, **changes)  # pyright: ignore[reportArgumentType]


def _chip_of(value: object, name: str) -> Chip | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return chip_from_table(value, default_name=f"chip of {name}")
    if isinstance(value, str):
        return known_chip(value)
    raise InvalidMachineModel(
        f"chip must be a name or a table, got {value!r}.", hint='write  chip = "bow"'
    )


def _machines(facts: Mapping[str, Fact], base: Mapping[str, Fact]) -> dict[str, Fact]:
    """The number of machines that n chips need, unless the file says it."""
    sizes = ("n_ipus", "n_ipus_per_machine")
    if "n_machines" in facts or not any(key in facts for key in sizes):
        return {}
    counts = [facts.get(key, base.get(key)) for key in sizes]
    values = [fact.value for fact in counts if fact is not None]
    if len(values) < 2 or not all(type(v) is int and v > 0 for v in values):
        return {}  # making the system says what is wrong
    n_ipus, per_machine = values
    n = -(-n_ipus // per_machine)  # pyright: ignore[reportOperatorIssue] - whole numbers, as checked
    return {"n_machines": derived(n, f"{n_ipus} chips, {per_machine} to a machine")}
