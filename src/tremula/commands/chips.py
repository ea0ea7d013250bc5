"""`tremula chips`: the machines Tremula knows, and the source of each of their constants."""

import argparse
import json
import textwrap
import tomllib
from dataclasses import asdict
from pathlib import Path

from tremula.base.errors import InvalidMachineModel, suggest
from tremula.base.storage import strict_toml
from tremula.base.types import HALF, QUARTER
from tremula.hardware import CHIPS, SYSTEMS, Chip, Fact, System, load_chip, load_system
from tremula.hardware.constant_records import quantities
from tremula.hardware.die_area import die_area, logic_transistors_per_mm2

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        help="a chip (bow), a system (pod16) or one of your own (my.toml); without it, all",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        print(json.dumps(_all_as_json(), indent=2) if args.json else _overview())
        return 0
    machine = _find(args.name)
    print(json.dumps(_as_json(machine), indent=2) if args.json else _details(machine))
    return 0


def _find(name: str) -> Chip | System:
    if name.lower().endswith(".toml"):
        return _load(Path(name))
    known = {**SYSTEMS, **CHIPS}
    if name.lower() not in known:
        raise InvalidMachineModel(
            f"no chip or system {name!r}.",
            hint=suggest(name.lower(), known) + " One of your own is a file ending in .toml.",
        )
    return known[name.lower()]


def _load(path: Path) -> Chip | System:
    """A chip's file, or a system's: that has chips, or a known system as its base."""
    try:
        table = strict_toml.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        table = {}  # load_chip says what is wrong
    is_system = "n_ipus" in table or str(table.get("base", "")).lower() in SYSTEMS
    return load_system(path) if is_system else load_chip(path)


def _overview() -> str:
    chips = [_chip_row(key, chip) for key, chip in CHIPS.items()]
    systems = [_system_row(key, system) for key, system in SYSTEMS.items()]
    chip_head = ("chip", "arch", "tiles", "workers", "KiB/tile", "GHz", "TFLOP/s 16-bit", "8-bit")
    system_head = ("system", "chip", "IPUs", "machines", "hosts", "links", "SRAM GiB", "DRAM GiB")
    return "\n".join(
        [
            *_table(chip_head, chips),
            "",
            *_table(system_head, systems),
            "",
            "tremula chips NAME prints every constant with its source.",
        ]
    )


def _chip_row(key: str, chip: Chip) -> tuple[str, ...]:
    eight_bit = chip.peak_flops(QUARTER, HALF) / 1e12
    return (
        key,
        chip.arch,
        f"{chip.n_tiles:,}",
        str(chip.n_workers),
        f"{chip.n_bytes_per_tile / 1024:,.0f}",
        f"{chip.clock_hz / 1e9:g}",
        f"{chip.peak_flops(HALF, HALF) / 1e12:.1f}",
        f"{eight_bit:.1f}" if eight_bit else "–",
    )


def _system_row(key: str, system: System) -> tuple[str, ...]:
    return (
        key,
        system.chip.name,
        str(system.n_ipus),
        str(system.n_machines),
        str(system.n_hosts),
        system.topology,
        f"{system.n_bytes_sram / 2**30:.1f}",
        f"{system.n_bytes_dram / 2**30:,.0f}" if system.n_bytes_dram else "–",
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, tuple("─" * w for w in widths), *rows):
        cells = [
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _details(machine: Chip | System) -> str:
    """Every constant: a line of figures, then its source."""
    lines = [machine.name]
    if isinstance(machine, System):
        lines += [f"  chips: {machine.chip.name}", *_link_lines(machine)]
    group = ""
    for key, field in quantities(type(machine)).items():
        if field.metadata["group"] != group:
            group = field.metadata["group"]
            lines += ["", group]
        lines += _fact_lines(key, machine.facts[key], field.metadata["meaning"])
    if isinstance(machine, Chip):
        lines += ["", *_area_lines(machine)]
    lines += ["", _provenances(machine)]
    return "\n".join(lines)


def _area_lines(of: Chip) -> list[str]:
    """Parts of the die, and whether what is not memory is as dense as logic can be."""
    area = die_area(of)
    parts = ", ".join(f"{name} {value:,.0f}" for name, value in asdict(area).items())
    density = f"{logic_transistors_per_mm2(of) / 1e6:.0f} million transistors/mm2 beside memory"
    return [f"area: {area.total:,.0f} mm2 ({parts})", f"  {density}"]


def _link_lines(system: System) -> list[str]:
    links = system.links
    if not len(links):
        return []
    rates = sorted({f"{rate:g}" for rate in links.gbytes_per_s.tolist()}, key=float)
    return [f"  {len(links)} directed links, of {', '.join(rates)} GB/s"]


def _fact_lines(key: str, fact: Fact, meaning: str) -> list[str]:
    value = _shown(fact)
    first = f"  {key:<43}{value:>22}  {fact.provenance}"
    rest = textwrap.wrap(
        f"{meaning} [{fact.source}]",
        WIDTH,
        initial_indent="      ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )
    return [first, *rest]


def _shown(fact: Fact) -> str:
    value = fact.value
    if isinstance(value, int):
        shown = f"{value:,}"
    elif isinstance(value, float):
        shown = f"{value:,.0f}" if value >= 1e4 else f"{value:g}"
    else:
        shown = value
    return f"{shown} {fact.unit}".rstrip()


def _provenances(machine: Chip | System) -> str:
    counts: dict[str, int] = {}
    for fact in machine.facts.values():
        counts[fact.provenance] = counts.get(fact.provenance, 0) + 1
    parts = ", ".join(f"{n} {provenance}" for provenance, n in sorted(counts.items()))
    return f"{len(machine.facts)} constants: {parts}"


def _as_json(machine: Chip | System) -> dict[str, object]:
    facts = {key: asdict(fact) for key, fact in machine.facts.items()}
    if isinstance(machine, System):
        return {"kind": "system", "name": machine.name, "chip": machine.chip.name, "facts": facts}
    return {"kind": "chip", "name": machine.name, "facts": facts}


def _all_as_json() -> dict[str, object]:
    return {
        "chips": {key: _as_json(chip) for key, chip in CHIPS.items()},
        "systems": {key: _as_json(system) for key, system in SYSTEMS.items()},
    }
