"""Chips, machines, pods and their links: constants, each with its source."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.hardware.chip_files import chip_from_toml, chip_to_toml, load_chip, save_chip
from tremula.hardware.chip_model import PUBLISHED_DATA_PATH_BYTES, Chip
from tremula.hardware.constant_records import Fact
from tremula.hardware.die_area import DieArea, die_area
from tremula.hardware.floor_plan import (
    exchange_latency_cycles,
    exchange_ways,
    longest_exchange_latency_cycles,
    tile_positions,
)
from tremula.hardware.known_chips import CHIPS, chip
from tremula.hardware.known_systems import SYSTEMS, single, system
from tremula.hardware.network import LinkLoads, Links, Traffic
from tremula.hardware.system_files import (
    load_system,
    save_system,
    system_from_toml,
    system_to_toml,
)
from tremula.hardware.system_model import System

__all__ = [
    "CHIPS",
    "Chip",
    "DieArea",
    "Fact",
    "LinkLoads",
    "Links",
    "PUBLISHED_DATA_PATH_BYTES",
    "SYSTEMS",
    "System",
    "Traffic",
    "chip",
    "chip_from_toml",
    "chip_to_toml",
    "die_area",
    "exchange_latency_cycles",
    "exchange_ways",
    "load_chip",
    "load_system",
    "longest_exchange_latency_cycles",
    "save_chip",
    "save_system",
    "single",
    "system",
    "system_from_toml",
    "system_to_toml",
    "tile_positions",
]

_explain_arguments_of(globals(), __all__)
