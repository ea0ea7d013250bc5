"""A space to sweep: a small TOML file of models, chips, systems and options, each with values."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tremula.base.errors import FileLoadError, InvalidOption, suggest
from tremula.hardware import Chip
from tremula.hardware.facts import quantities

# Short names of constants that are swept most.
CHIP_ALIASES = {
    "tiles": "n_tiles", "sram": "n_bytes_per_tile", "workers": "n_workers", "clock": "clock_hz",
    "exchange": "exchange_bytes_per_cycle", "links": "ipu_link_gbytes_per_s",
}  # fmt: skip
OPTIONS = (
    "batch", "stages", "replicas", "accumulation", "recomputes", "memory_proportion",
    "states_off_chip", "shards_states", "merges_sums",
)  # fmt: skip
_TABLES = ("name", "models", "chip", "options")
Job = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """Models, and values of everything that varies; `jobs` are all combinations."""

    name: str
    models: Mapping[str, Mapping[str, Any]]
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


def _combinations(values: Mapping[str, list]) -> Iterator[dict[str, Any]]:
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def load_space(path: str | os.PathLike[str]) -> Space:
    """Read a space; scripts are found beside its file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileLoadError(
            f"cannot read the space {str(path)!r}: {error}.",
            hint="give a TOML file with tables [models], [chip] and [options]",
        ) from error
    _check_names(table, _TABLES, "table", str(path))
    chip = {CHIP_ALIASES.get(k, k): v for k, v in _listed(table.get("chip", {})).items()}
    _check_names(chip, ["base", *CHIP_ALIASES, *quantities(Chip)], "constant of a chip", str(path))
    options = _listed(table.get("options", {}))
    _check_names(options, OPTIONS, "option", str(path))
    models = {
        name: _model(name, given, Path(path)) for name, given in table.get("models", {}).items()
    }
    if not models:
        raise InvalidOption(
            f"{str(path)!r} has no models.", hint='write  [models]  and  mlp = "train.py"'
        )
    return Space(str(table.get("name", Path(path).stem)), models, chip, options)


def _listed(values: Mapping[str, Any]) -> dict[str, list]:
    """A single value is a list of one."""
    return {key: value if isinstance(value, list) else [value] for key, value in values.items()}


def _model(name: str, given: object, path: Path) -> dict[str, Any]:
    """A script, or a table of a script and its arguments."""
    table: dict[str, Any] = given if isinstance(given, dict) else {"script": given}
    _check_names(table, ("script", "arguments"), f"key of model {name!r}", str(path))
    if not isinstance(table.get("script"), str):
        raise InvalidOption(
            f"model {name!r} of {str(path)!r} has no script.", hint=f'write  {name} = "train.py"'
        )
    script = (path.resolve().parent / table["script"]).resolve()
    return {"script": str(script), "arguments": [str(a) for a in table.get("arguments", [])]}


def _check_names(given: Mapping[str, Any], known: Any, what: str, path: str) -> None:  # noqa: ANN401
    for key in given:
        if key not in known:
            raise InvalidOption(f"{path!r}: unknown {what} {key!r}.", hint=suggest(key, known))
