"""What the What-if view fetches: constants that can change, sweeps, and the points of a sweep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tremula.base.errors import InvalidOption, suggest
from tremula.base.storage.strict_json import JsonObject
from tremula.base.version import VERSION
from tremula.hardware import Chip, chip_from_toml
from tremula.hardware.constant_records import quantities
from tremula.vision.analysis.quantities import quantity_facts
from tremula.vision.analysis.whatif import (
    RECOSTED,
    ChipPoint,
    Number,
    RecostableProgram,
    label_of,
    parse_sweep,
    points_of,
)
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader

MOST_POINTS, MOST_CONSTANTS = 96, 2
# A value this much larger or smaller than the chip's own is a typing error.
MOST_TIMES = 10_000
_FACTORS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4)
_FEW_FACTORS = (0.5, 1, 2)
# Costing a program of more steps again takes so long that ready sweeps have few points.
_MANY_STEPS = 1_000
# What an export holds: one constant alone, or two together.
_READY = (
    ("clock_hz",), ("sync_cycles",), ("exchange_bytes_per_cycle",), ("n_bytes_per_tile",),
    ("host_link_gbytes_per_s",), ("clock_hz", "exchange_bytes_per_cycle"),
)  # fmt: skip
Sweep = Mapping[str, Sequence[Number]]


def changeable(chip: Chip) -> list[JsonObject]:
    """Constants that change what a fixed tile program takes, with their provenance."""
    fields = quantities(Chip)
    shown = [name for name in RECOSTED if fields[name].metadata["group"] != "power"]
    return [constant(chip, name) for name in shown]


def constant(chip: Chip, name: str) -> JsonObject:
    """A constant as the page shows it."""
    fact = chip.facts[name]
    own = {"value": fact.value, "standing": fact.provenance, "source": fact.source}
    return {**described(name), **own, "grain": _grain(chip, name)}


def described(name: str) -> JsonObject:
    """What a constant means, whatever the chip."""
    rules = quantities(Chip)[name].metadata
    return {"name": name, **{key: rules[key] for key in ("unit", "meaning", "group")}}


def _grain(chip: Chip, name: str) -> int:
    """Values are multiples of this; 0 if any number will do."""
    if name in ("n_bytes_per_tile", "n_bytes_region0", "n_bytes_region1"):
        return chip.n_bytes_memory_element
    return 1 if quantities(Chip)[name].type is int else 0


def ready_sweeps(chip: Chip, n_steps: int = 0) -> list[dict[str, list[Number]]]:
    """Sweeps around a chip's own values, for files without a server to compute others."""
    is_long = n_steps > _MANY_STEPS
    first = _FEW_FACTORS if is_long else _FACTORS
    return [
        {name: _around(chip, name, _FEW_FACTORS if i else first) for i, name in enumerate(of)}
        for of in _READY
        if len(of) == 1 or not is_long
    ]


def _around(chip: Chip, name: str, factors: Sequence[float]) -> list[Number]:
    value, grain = getattr(chip, name), _grain(chip, name)
    result = [value * f if not grain else max(1, round(value * f / grain)) * grain for f in factors]
    return sorted({int(v) if float(v).is_integer() else v for v in result})


def name_of(sweep: Sweep) -> str:
    """A sweep as it is written in pack names and the page's address: clock_hz=1,2/sync_cycles=3."""
    return "/".join(f"{name}={','.join(map(repr, values))}" for name, values in sweep.items())


# -- packs -----------------------------------------------------------------------------------------


def whatif_facts(reader: ReportReader, why_not: str) -> JsonObject:
    """What can be varied; `why_not` says why nothing can."""
    chip = chip_from_toml(reader.target["chip_toml"])
    return {
        "constants": changeable(chip),
        "sweeps": []
        if why_not
        else [name_of(sweep) for sweep in ready_sweeps(chip, reader.n_steps)],
        "chip": chip.name,
        "has_run": reader.has_run,
        "why_not": why_not,
        "most_points": MOST_POINTS,
        "is_fixed_program": True,
    }


class Points:
    """Points of sweeps over one program, each computed once."""

    def __init__(self, program: RecostableProgram):
        self.program = program
        self._known: dict[tuple[tuple[str, Number], ...], ChipPoint] = {}
        self.n_asked = self.n_done = 0  # of the sweep under way

    def pack(self, parts: Sequence[str]) -> bytes:
        """The points of a sweep, and the chip as it is."""
        sweep = parse_sweep(list(parts))
        _check(self.program.chip, sweep)
        wanted = list(points_of(sweep))
        self.n_asked, self.n_done = len(wanted) + 1, 0
        return pack_of(points_facts(sweep, [self._point({}), *map(self._point, wanted)]))

    def _point(self, changes: dict[str, Number]) -> ChipPoint:
        """Values that are the chip's own are not changes."""
        chip = self.program.chip
        real = {name: value for name, value in changes.items() if value != getattr(chip, name)}
        key = tuple(sorted(real.items()))
        if key not in self._known:
            one = {name: [value] for name, value in real.items()}
            point = next(iter(self.program.sweep(one))) if real else self.program.as_reported()
            self._known[key] = point
        self.n_done += 1
        point = self._known[key]
        return replace(point, changes=changes, label=label_of(changes)) if changes else point


def points_facts(sweep: Sweep, points: Sequence[ChipPoint]) -> JsonObject:
    """Facts of a sweep; a first point without changes is the chip as it is."""
    return {
        "sweep": {name: list(values) for name, values in sweep.items()},
        "points": [point.as_dict() for point in points],
    }


def standalone_packs(title: str, sweep: Sweep, points: Sequence[ChipPoint]) -> dict[str, bytes]:
    """The packs of a page that shows the points of one sweep and nothing else."""
    name = name_of(sweep) or "chips"
    report = {"title": title, "chip": points[0].label, "n_ipus": 1, "n_steps": 0, "has_run": True}
    facts = {
        "constants": [described(constant) for constant in sweep],
        "sweeps": [name],
        "chip": "",
        "has_run": any(point.total_cycles for point in points),
        "why_not": "",
        "is_fixed_program": False,
    }
    index = {"version": VERSION, "views": ["whatif"], "quantities": quantity_facts()}
    return {
        "index": pack_of(
            {**index, "reports": [{**report, "total_cycles": points[0].total_cycles}]}
        ),
        "0/whatif": pack_of(facts),
        f"0/whatif/{name}": pack_of(points_facts(sweep, points)),
    }


def _check(chip: Chip, sweep: Sweep) -> None:
    """Refuse sweeps that would take too long or cannot be meant."""
    n_points = math.prod(len(values) for values in sweep.values())
    if not 1 <= len(sweep) <= MOST_CONSTANTS or n_points > MOST_POINTS:
        raise InvalidOption(
            f"{n_points} points of {len(sweep)} constants are asked for, expected at most "
            f"{MOST_POINTS} of {MOST_CONSTANTS}.",
            hint="take fewer values, or use `tremula whatif`",
        )
    names = [one["name"] for one in changeable(chip)]
    for name, values in sweep.items():
        if name not in names:
            raise InvalidOption(
                f"a report's tile program is fixed, so {name} cannot change.",
                hint=f"give the script to `tremula whatif`; {suggest(name, names)}",
            )
        own = getattr(chip, name)
        most, least = MOST_TIMES * max(own, 1e-9), own / MOST_TIMES
        wrong = [v for v in values if not (v == 0 or least <= v <= most)]
        if wrong:
            raise InvalidOption(
                f"{name} is {wrong[0]:g}, expected {least:g} to {most:g}.",
                hint=f"the chip has {own:g}",
            )
