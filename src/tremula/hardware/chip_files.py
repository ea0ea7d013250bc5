"""Your own chips as TOML files: a base chip and its changes, or every constant."""

import json
import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tremula.base.errors import FileLoadError, InvalidMachineModel, suggest
from tremula.base.storage import strict_toml
from tremula.base.storage.atomic_file import write_text
from tremula.hardware.chip_model import ARCHITECTURES, Chip, make_chip
from tremula.hardware.constant_records import Fact, check_names, quantities
from tremula.hardware.die_area import AREA_CONSTANTS
from tremula.hardware.known_chips import chip

_FACT_KEYS = ("value", "provenance", "source")
_FORMER_KEYS = {"standing": "provenance"}  # of files written before 0.2


def load_chip(path: str | os.PathLike[str]) -> Chip:
    """Read a chip from a TOML file.

    `base = "bow"` with changed constants, or every constant without a base. A constant is a plain
    value, or a table with `value` and, if you like, `provenance` and `source`.
    """
    return chip_from_toml(read_toml_file(Path(path), "chip"), origin=str(path))


@lru_cache(maxsize=64)  # every engine asks for its executable's chip
def chip_from_toml(text: str, origin: str = "TOML text") -> Chip:
    """A chip from the text of a TOML file; `origin` names it in errors."""
    try:
        table = strict_toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileLoadError(
            f"{origin} is no TOML: {error}", hint="write lines such as  n_tiles = 2944"
        ) from error
    try:
        return chip_from_table(table, default_name=Path(origin).stem)
    except InvalidMachineModel as error:
        raise InvalidMachineModel(f"{origin}: {error.what}", hint=error.hint) from error


def chip_to_toml(chip: Chip) -> str:
    """A self-contained TOML file of a chip; `chip_from_toml` returns the same chip and sources."""
    lines = [f"name = {toml_value(chip.name)}", "", *fact_lines(chip.facts)]
    return "\n".join(lines) + "\n"


def fact_lines(facts: Mapping[str, Fact]) -> list[str]:
    """Constants as TOML, each a table with its provenance and source."""
    lines = []
    for key, fact in facts.items():
        parts = (f"{k} = {toml_value(getattr(fact, k))}" for k in _FACT_KEYS)
        lines.append(f"{key} = {{ {', '.join(parts)} }}")
    return lines


def save_chip(chip: Chip, path: str | os.PathLike[str]) -> None:
    """Write a chip as a TOML file."""
    write_text(path, chip_to_toml(chip))


def read_toml_file(path: Path, what: str) -> str:
    """The text of a file that describes a chip, or a system."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise FileLoadError(
            f"cannot read the {what} file {str(path)!r}: {reason}.",
            hint='give the path of a TOML file with lines such as  base = "bow"',
        ) from error


def chip_from_table(table: Mapping[str, object], default_name: str) -> Chip:
    """A chip from the table of a TOML file."""
    constants = {key: value for key, value in table.items() if key not in ("name", "base")}
    name = table.get("name", default_name)
    for key, value in (("name", name), ("base", table.get("base", ""))):
        if not isinstance(value, str):
            raise InvalidMachineModel(
                f"{key} must be a text, got {value!r}.", hint=f'write  {key} = "..."'
            )
    for key in constants:
        if key not in quantities(Chip):
            raise InvalidMachineModel(
                f"unknown key {key!r}.", hint=suggest(key, ["name", "base", *quantities(Chip)])
            )
    return _made(str(name), table.get("base"), constants)


def _made(name: str, base_name: object, constants: Mapping[str, object]) -> Chip:
    if base_name is None:
        source = f"given for {name}"
        facts = {k: fact_from_toml(k, v, source) for k, v in constants.items()}
        return make_chip(name, _area_of_older_file(facts) | facts)
    base = chip(str(base_name))
    source = f"changed from {base.name}"
    check_names(Chip, name, constants)
    return base.replace(
        name=name, **{k: fact_from_toml(k, v, source) for k, v in constants.items()}
    )


def _area_of_older_file(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Constants of area for files that were written before chips had them; they change no cost."""
    arch = str(facts["arch"].value) if "arch" in facts else ""
    if "n_tiles" not in facts or arch not in ARCHITECTURES:
        return {}  # the error about what else is missing is more useful
    known = chip(arch)
    source = f"taken over from {known.name}: the file has none"
    return {key: Fact(getattr(known, key), "guessed", source) for key in AREA_CONSTANTS}


def fact_from_toml(key: str, entry: object, source: str) -> Fact:
    """A constant as a file states it: a plain value, or a table that says where it comes from."""
    if not isinstance(entry, dict):
        return Fact(entry, "yours", source)  # pyright: ignore[reportArgumentType]
    parts: dict[str, Any] = {_FORMER_KEYS.get(str(k), str(k)): v for k, v in entry.items()}
    for part in parts:
        if part not in _FACT_KEYS:
            raise InvalidMachineModel(
                f"unknown key {part!r} of {key}.", hint=suggest(part, _FACT_KEYS)
            )
    if "value" not in parts:
        raise InvalidMachineModel(
            f"{key} has no value.", hint=f'write  {key} = {{ value = ..., source = "..." }}'
        )
    return Fact(parts["value"], parts.get("provenance", "yours"), parts.get("source", source))


def toml_value(value: int | float | str) -> str:
    """A value as TOML."""
    # A TOML basic string has JSON's escapes; DEL alone must be escaped in TOML and not in JSON.
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
