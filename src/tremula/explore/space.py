"""A space to sweep: a small TOML file of models, chips, systems and options, each with values."""

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tremula.base.errors import FileLoadError, InvalidOption, suggest
from tremula.base.storage import strict_toml
from tremula.base.storage.strict_json import JsonObject
from tremula.hardware import CHIPS, Chip
from tremula.hardware.constant_records import quantities

# Short names of constants that are swept most.
CHIP_ALIASES = {
    "tiles": "n_tiles", "sram": "n_bytes_per_tile", "workers": "n_workers", "clock": "clock_hz",
    "exchange": "exchange_bytes_per_cycle", "links": "ipu_link_gbytes_per_s",
}  # fmt: skip
_WHOLE, _CHOICE, _SHARE = "a whole number, 1 or more", "true or false", "a number above 0"
OPTIONS = {
    "batch": _WHOLE, "stages": _WHOLE, "replicas": _WHOLE, "accumulation": _WHOLE,
    "recomputes": _CHOICE, "memory_proportion": _SHARE, "states_off_chip": _CHOICE,
    "shards_states": _CHOICE, "merges_sums": _CHOICE,
}  # fmt: skip
_EXAMPLES = {_WHOLE: "[1, 2]", _CHOICE: "[true, false]", _SHARE: "[0.3, 0.6]"}
_TABLES = ("name", "models", "chip", "options")
Job = JsonObject


@dataclass(frozen=True)
class Space:
    """Models, and values of everything that varies; `jobs` are all combinations."""

    name: str
    models: Mapping[str, JsonObject]
    chip: Mapping[str, list]
    options: Mapping[str, list]

    @property
    def jobs(self) -> list[Job]:
        """Plain dicts: what one point needs, to be computed in any process."""
        return [
            {"model": name, **self.models[name], "chip": chip, "options": options}
            for name in self.models
            for chip in _combinations(self.chip)
            for options in _combinations(self.options)
        ]


def _combinations(values: Mapping[str, list]) -> Iterator[JsonObject]:
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def load_space(path: str | os.PathLike[str]) -> Space:
    """Read a space; scripts are found next to its file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        table = strict_toml.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise FileLoadError(
            f"cannot read the space {str(path)!r}: {why}.",
            hint="give a TOML file with tables [models], [chip] and [options]",
        ) from error
    _check_names(table, _TABLES, "table", str(path))
    chip = {CHIP_ALIASES.get(k, k): v for k, v in _listed(table.get("chip", {})).items()}
    _check_names(chip, ["base", *CHIP_ALIASES, *quantities(Chip)], "constant of a chip", str(path))
    options = _listed(table.get("options", {}))
    _check_names(options, OPTIONS, "option", str(path))
    _check_values(chip, options, str(path))
    models = {
        name: _model(name, model, Path(path)) for name, model in table.get("models", {}).items()
    }
    if not models:
        raise InvalidOption(
            f"{str(path)!r} has no models.", hint='write  [models]  and  mlp = "train.py"'
        )
    return Space(str(table.get("name", Path(path).stem)), models, chip, options)


def _listed(values: Mapping[str, object]) -> dict[str, list]:
    """A single value is a list of one."""
    return {key: value if isinstance(value, list) else [value] for key, value in values.items()}


def _model(name: str, value: object, path: Path) -> JsonObject:
    """A script, or a table of a script and its arguments."""
    table: JsonObject = value if isinstance(value, dict) else {"script": value}
    _check_names(table, ("script", "arguments"), f"key of model {name!r}", str(path))
    if not isinstance(table.get("script"), str) or "\0" in table["script"]:
        raise InvalidOption(
            f"model {name!r} of {str(path)!r} has no script.", hint=f'write  {name} = "train.py"'
        )
    script = (path.resolve().parent / table["script"]).resolve()
    return {"script": str(script), "arguments": [str(a) for a in table.get("arguments", [])]}


def _check_names(entries: Collection[str], known: Collection[str], what: str, path: str) -> None:
    for key in entries:
        if key not in known:
            raise InvalidOption(f"{path!r}: unknown {what} {key!r}.", hint=suggest(key, known))


def _check_values(chip: Mapping[str, list], options: Mapping[str, list], path: str) -> None:
    for key, values in {**chip, **options}.items():
        if not values:
            raise InvalidOption(f"{path!r}: {key} has no values.", hint="give it one, or leave it")
    for name in chip.get("base", []):
        if name not in CHIPS:
            hint = suggest(str(name), CHIPS)
            raise InvalidOption(f"{path!r}: unknown chip {name!r}.", hint=hint)
    for key, values in options.items():
        for value in values:
            if not _is_kind(value, OPTIONS[key]):
                raise InvalidOption(
                    f"{path!r}: {key} is {value!r}, expected {OPTIONS[key]}.",
                    hint=f"write  {key} = {_EXAMPLES[OPTIONS[key]]}",
                )


def _is_kind(value: object, kind: str) -> bool:
    if kind == _CHOICE or isinstance(value, bool):
        return kind == _CHOICE and isinstance(value, bool)
    kinds = (int,) if kind == _WHOLE else (int, float)
    return isinstance(value, kinds) and value > 0
