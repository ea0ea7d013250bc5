"""The systems Graphcore sold, and how any number of chips is joined; constants with sources."""

from types import MappingProxyType

from tremula.base.errors import InvalidMachineModel, suggest
from tremula.hardware.chip_model import Chip
from tremula.hardware.constant_records import Fact, derived, guessed, stated
from tremula.hardware.known_chips import CHIPS
from tremula.hardware.known_chips import chip as _as_chip
from tremula.hardware.sources import (
    ARGONNE_2023,
    ARGONNE_2024,
    BOW_SHEET,
    BYTE_MLPERF,
    CAMBRIAN,
    DSS8440_SLIDES,
    ESO_2023,
    HANLON,
    JIA,
    M2000_SHEET,
    POPLIBS,
)
from tremula.hardware.system_model import MAX_IPUS, System, make_system

_GIB = 2**30
_N_MACHINES_PER_RACK = 16

# An IPU-Machine: four chips and a gateway.
_MACHINE = {
    "n_ipus_per_machine": stated(4, f"{BOW_SHEET}; {M2000_SHEET}"),
    "n_machines_per_rack": stated(_N_MACHINES_PER_RACK, f"{ARGONNE_2024}: IPU-Links within Pod64"),
    "n_links_across": derived(4, f"{POPLIBS}, its test model of links: 4 to the chip beside"),
    "n_links_along": derived(2, f"{POPLIBS}, its test model of links: 2 up and 2 down"),
    "n_links_diagonal": guessed(2, "the two of ten links left over when all others are placed"),
    "across_latency_s": guessed(0.25e-6, f"as between the chips of a C2 card: {JIA}, fig. 4.4"),
    "n_gateways_per_machine": stated(1, ARGONNE_2024),
    "n_gateway_links_per_machine": stated(2, f"{BOW_SHEET}; {ARGONNE_2024}"),
    "gateway_link_gbytes_per_s": stated(12.5, f"{ARGONNE_2023}: 100 Gb/s raw"),
    "gateway_latency_s": guessed(1e-6, "no measurement found"),
    "host_gbytes_per_s_per_machine": stated(12.5, f"{BOW_SHEET}: 100 Gb/s Ethernet"),
    "n_bytes_dram_per_machine": stated(128 * _GIB, f"{BOW_SHEET}: 128 GB, at most 256"),
    "dram_gbytes_per_s_per_machine": stated(20.0, f"{CAMBRIAN}; two DDR4-2400 give at most 38.4"),
}

_POD_DRAM = {
    "n_bytes_dram_per_machine": derived(
        64 * _GIB, f"{ESO_2023}: 256 GB in Pod16; a machine's datasheet says 128 to 256"
    ),
}

# What a card without a gateway lacks; rates and latencies must not be zero and are never used.
_NO_GATEWAY = {
    "n_machines_per_rack": derived(4096, "no gateways: all cards are joined by IPU-Links"),
    "n_gateways_per_machine": stated(0, "a card has no gateway"),
    "n_gateway_links_per_machine": stated(0, "a card has no gateway"),
    "gateway_link_gbytes_per_s": guessed(12.5, "unused: a card has no gateway"),
    "gateway_latency_s": guessed(1e-6, "unused: a card has no gateway"),
    "n_bytes_dram_per_machine": stated(0, "a card has no streaming memory"),
    "dram_gbytes_per_s_per_machine": stated(0.0, "a card has no streaming memory"),
}

_C2_CARD = _NO_GATEWAY | {
    "n_ipus_per_machine": stated(2, DSS8440_SLIDES),
    "n_links_across": derived(4, f"{JIA}, table 4.6: 55.0 GB/s between chips of a card"),
    "n_links_along": derived(2, f"{JIA}, table 4.6: 27.7 GB/s from card to card"),
    "n_links_diagonal": stated(0, JIA),
    "across_latency_s": stated(0.25e-6, f"{JIA}, fig. 4.4: a hop to the other chip of a card"),
    "host_gbytes_per_s_per_machine": derived(6.88, f"{JIA}, table 4.20: 55.04 GB/s to 8 cards"),
    "machine_watts": stated(300.0, HANLON),
}

_C600_CARD = _NO_GATEWAY | {
    "n_ipus_per_machine": stated(1, BYTE_MLPERF),
    "n_links_across": guessed(2, "half of the four links"),
    "n_links_along": guessed(1, "a quarter of the four links"),
    "n_links_diagonal": guessed(0, "no links are left over"),
    "across_latency_s": guessed(0.16e-6, f"as between cards: {JIA}, fig. 4.4"),
    "host_gbytes_per_s_per_machine": guessed(16.0, "PCIe Gen4 x8"),
    "machine_watts": stated(185.0, BYTE_MLPERF),
}

_WAYS = ("across", "along", "diagonal")

_LADDER_IN_STACK = guessed("ladder", "a directly attached stack; whether it closes is not known")
_TORUS_IN_RACK = stated("torus", f"{ARGONNE_2024}: 2-D torus within Pod64")
_DIRECT = derived("direct", "one machine: every chip is joined to every other")

# Chips, hosts and topology of each pod.
_PODS: dict[str, tuple[Fact, Fact, Fact]] = {
    "pod4": (stated(4, BOW_SHEET), stated(1, BOW_SHEET), _DIRECT),
    "pod16": (stated(16, ESO_2023), stated(1, ESO_2023), _LADDER_IN_STACK),
    "pod64": (stated(64, ESO_2023), stated(1, f"{ESO_2023}: 1 to 4"), _TORUS_IN_RACK),
    "pod128": (
        derived(128, "two racks of Pod64"),
        derived(2, f"twice Pod64's 1 to 4: {ESO_2023}"),
        _TORUS_IN_RACK,
    ),
    "pod256": (stated(256, ESO_2023), stated(4, f"{ESO_2023}: 4 to 16"), _TORUS_IN_RACK),
}

SYSTEM_NAMES = ("c600-card", "dss8440", "ipu-m2000", "bow-2000", *_PODS)
_OTHER_NAMES = {"c600": "c600-card", "m2000": "ipu-m2000", "bow2000": "bow-2000"}


def system(name: str | System, chip: str | Chip | None = None) -> System:
    """The system of that name; pods and machines are of Bow chips by default.

    >>> system("pod16", chip="gc200").n_tiles
    23552
    """
    if isinstance(name, System):
        return name if chip is None else name.replace(chip=_as_chip(chip))
    key = str(name).strip().lower()
    key = _OTHER_NAMES.get(key, key)
    if key not in SYSTEM_NAMES:
        raise InvalidMachineModel(f"unknown system {name!r}.", hint=suggest(key, SYSTEM_NAMES))
    if key == "dss8440":
        return _dss8440(_as_chip(chip or "gc2"))
    if key == "c600-card":
        return _c600_card(_as_chip(chip or "c600"))
    if key in _PODS:
        return _pod(key, _as_chip(chip or "bow"))
    return _machine(key, _as_chip(chip or ("gc200" if key == "ipu-m2000" else "bow")))


def single(chip: str | Chip, n_ipus: int = 1) -> System:
    """An ad-hoc system of `n_ipus` chips, joined as Graphcore did as far as their links allow.

    Chips with a card are joined as cards in a ladder; all others as IPU-Machines: direct up to
    one machine, a ladder up to four, a torus up to a rack, gateways beyond.
    """
    chosen = _as_chip(chip)
    if type(n_ipus) is not int or not 1 <= n_ipus <= MAX_IPUS:
        raise InvalidMachineModel(
            f"n_ipus must be a whole number from 1 to {MAX_IPUS:,}; got {n_ipus!r}.",
            hint="write single('bow', 4)",
        )
    parts = _parts_for(chosen)
    n_per_machine = int(parts["n_ipus_per_machine"].value)
    n_machines = -(-n_ipus // n_per_machine)
    facts = parts | {
        "n_ipus": Fact(n_ipus, "yours", "asked for"),
        "n_machines": derived(n_machines, f"{n_ipus} chips, {n_per_machine} to a machine"),
        "n_hosts": guessed(-(-n_machines // _N_MACHINES_PER_RACK), "one for each rack"),
        "topology": _topology_of(n_machines, has_gateway=n_per_machine == 4),
    }
    return make_system(f"{n_ipus} x {chosen.name}", chosen, facts)


def _topology_of(n_machines: int, *, has_gateway: bool) -> Fact:
    if n_machines == 1:
        return _DIRECT
    if has_gateway and n_machines > 4:
        return _TORUS_IN_RACK
    return _LADDER_IN_STACK


def _parts_for(chip: Chip) -> dict[str, Fact]:
    """The machine or card a chip would be built into."""
    cards = {"ipu1": _C2_CARD, "ipu21": _C600_CARD}
    parts = cards.get(chip.arch) or _MACHINE | _watts(chip)
    across, along, diagonal = (int(parts[f"n_links_{way}"].value) for way in _WAYS)
    if chip.n_ipu_links >= across + 2 * along + diagonal:
        return parts
    n_along = max(1, chip.n_ipu_links // 5)
    n_across = max(1, chip.n_ipu_links - 2 * n_along)
    source = f"the {chip.n_ipu_links} links of {chip.name}, split by direction"
    links_by_way = zip(_WAYS, (n_across, n_along, 0), strict=True)
    return parts | {f"n_links_{way}": derived(n, source) for way, n in links_by_way}


def _dss8440(chip: Chip) -> System:
    facts = _C2_CARD | {
        "n_ipus": stated(16, f"{DSS8440_SLIDES}; {JIA}"),
        "n_machines": stated(8, f"{DSS8440_SLIDES}; {JIA}"),
        "n_hosts": stated(1, f"{DSS8440_SLIDES}: one chassis of two Xeons"),
        "topology": stated("ladder", f"{JIA}: an open ladder of cards"),
    }
    return make_system(_titled("DSS8440", chip, CHIPS["gc2"]), chip, facts)


def _c600_card(chip: Chip) -> System:
    facts = _C600_CARD | {
        "n_ipus": stated(1, BYTE_MLPERF),
        "n_machines": stated(1, BYTE_MLPERF),
        "n_hosts": stated(1, "a PCIe card sits in one host"),
        "topology": derived("direct", "one chip"),
    }
    return make_system(_titled("C600 card", chip, CHIPS["c600"]), chip, facts)


def _machine(key: str, chip: Chip) -> System:
    is_bow = key == "bow-2000"
    sheet = BOW_SHEET if is_bow else M2000_SHEET
    one_machine = {
        "n_ipus": stated(4, sheet),
        "n_machines": stated(1, sheet),
        "n_hosts": stated(1, sheet),
        "topology": _DIRECT,
    }
    title, usual = ("Bow-2000", "bow") if is_bow else ("IPU-M2000", "gc200")
    facts = _MACHINE | _watts(chip) | one_machine
    return make_system(_titled(title, chip, CHIPS[usual]), chip, facts)


def _pod(key: str, chip: Chip) -> System:
    n_ipus, n_hosts, topology = _PODS[key]
    n_machines = int(n_ipus.value) // 4
    facts = _MACHINE | ({} if n_machines == 1 else _POD_DRAM) | _watts(chip)
    facts |= {
        "n_ipus": n_ipus,
        "n_machines": derived(n_machines, f"{n_ipus.value} chips, four to a machine"),
        "n_hosts": n_hosts,
        "topology": topology,
    }
    makers_names = {CHIPS["bow"]: f"Bow {key.title()}", CHIPS["gc200"]: f"IPU-{key.upper()}"}
    return make_system(makers_names.get(chip, f"{key.title()} of {chip.name}"), chip, facts)


def _watts(chip: Chip) -> dict[str, Fact]:
    known = {
        CHIPS["bow"]: stated(1700.0, f"{BOW_SHEET}: programmable cap; 1500 with redundancy"),
        CHIPS["gc200"]: stated(1500.0, f"{M2000_SHEET}: cap"),
    }
    other = derived(4 * chip.tdp_watts, f"four chips of {chip.name} at their limit")
    return {"machine_watts": known.get(chip, other)}


def _titled(title: str, chip: Chip, usual: Chip) -> str:
    return title if chip == usual else f"{title} of {chip.name}"


SYSTEMS = MappingProxyType({name: system(name) for name in SYSTEM_NAMES})
