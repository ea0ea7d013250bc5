"""The chips Graphcore made: GC2, GC200, Bow and C600, each constant beside its source."""

from types import MappingProxyType

from tremula.base.errors import InvalidMachineModel, suggest
from tremula.hardware.chip_model import Chip, make_chip
from tremula.hardware.constant_records import Fact, derived, guessed, stated
from tremula.hardware.sources import (
    ANNOUNCEMENT,
    ARGONNE_2024,
    BOW_SHEET,
    BYTE_MLPERF,
    ESO_2023,
    GUIDE,
    HANLON,
    HOT_CHIPS_33,
    IPU_RESEARCH,
    IPU_STACK,
    ISA,
    JIA,
    M2000_SHEET,
    N7_SRAM,
    NOTEBOOK,
    POPLIBS,
    SRAM_DENSITY,
)

KIB = 1024


def _as_on(other: str, facts: dict[str, Fact]) -> dict[str, Fact]:
    """Constants of another chip, used for want of better ones: guesses."""
    return {
        key: guessed(fact.value, f"taken over from {other}: {fact.source}")
        for key, fact in facts.items()
    }


def _area_facts(
    die: Fact, n_transistors: Fact, sram: Fact, facts: dict[str, Fact]
) -> dict[str, Fact]:
    """Parts of a die that add up to it: memory by its density, guesses, and tiles as the rest."""
    exchange, link, io = 0.03, 2.0, 20.0
    n_tiles, n_links = (int(facts[key].value) for key in ("n_tiles", "n_ipu_links"))
    n_mib = n_tiles * int(facts["n_bytes_per_tile"].value) * 8 / 2**20
    memory_mm2 = n_mib / float(sram.value)
    rest = float(die.value) - memory_mm2 - n_tiles * exchange - n_links * link - io
    return {
        "n_transistors": n_transistors,
        "sram_mib_per_mm2": sram,
        "tile_logic_mm2": derived(
            round(rest / n_tiles, 4), f"{die.value:g} mm2 less memory, exchange, links and I/O"
        ),
        "exchange_mm2_per_tile": guessed(exchange, "a tenth of a tile's logic; no figure found"),
        "link_mm2": guessed(link, "as serial links of the time take; no figure found"),
        "io_mm2": guessed(io, "a fortieth of the die; no figure found"),
    }


# What all generations share.
_COMMON = {
    "n_workers": stated(6, f"{ISA}; {JIA}"),
    "data_path_bytes": stated(8, f"{ISA}, table 2.38"),
    "instruction_bytes": stated(4, ISA),
    "rpt_count_max": derived(4095, f"{ISA}: the immediate count of rpt has 12 bits"),
    "n_stride_bits": guessed(10, "unconfirmed: no public document found"),
    "flops_per_cycle_vector_float": derived(4, f"{ISA}, table 2.38: 2 lanes; {JIA}, table 5.1"),
    "flops_per_cycle_vector_half": derived(8, f"{ISA}, table 2.38: 4 lanes; {JIA}, table 5.1"),
    "n_bytes_memory_element": stated(16 * KIB, f"{IPU_STACK}; {IPU_RESEARCH}"),
    "load_bytes_per_cycle": stated(16, f"{ISA}; {JIA}, table 3.1"),
    "store_bytes_per_cycle": stated(8, ISA),
    "atomic_store_bytes": stated(4, f"{ISA}, sec. 2.8.6; {POPLIBS}"),
    "exchange_bytes_per_cycle": stated(4.0, f"{IPU_RESEARCH}; measured 3.95: {JIA}, table 4.6"),
    "n_tiles_per_exchange_bus": stated(2, f"{POPLIBS}, exchange estimator; {JIA}, table 4.9"),
    "n_bytes_worker_stack": guessed(256, f"{IPU_STACK}, its own runtime; Poplar's is unpublished"),
    "n_bytes_supervisor_stack": guessed(
        224, f"{IPU_STACK}, its own runtime; Poplar's is unpublished"
    ),
    "conv_unit_coeff_load_bytes_per_cycle": stated(16, f"{POPLIBS}; {ISA}, ld128putcs"),
    "ipu_link_gbytes_per_s": stated(16.0, f"{ESO_2023}; {ARGONNE_2024}"),
    "energy_pj_per_byte_mm": stated(0.5, ESO_2023),
    "energy_pj_per_byte_link": guessed(40.0, "5 pJ a bit, as electrical links of the time take"),
    "energy_pj_per_byte_dram": stated(300.0, f"{ESO_2023}: DDR"),
    "n_columns": stated(16, f"{JIA}, fig. 2.2; {IPU_STACK}"),
    "n_tiles_per_supertile": stated(4, f"{JIA}, fig. 2.2; {IPU_RESEARCH}"),
}

# What is known of the C600 alone: an independent compiler was calibrated on it.
_C600_ONLY = {
    "n_bytes_reserved_per_tile": stated(
        0x450, f"{IPU_STACK}: the loader cannot fill the last 0x450 bytes; a lower bound"
    ),
    "memcpy_bytes_per_cycle": stated(8, f"{IPU_STACK}, quoting Poplar's target"),
    "on_tile_copy_setup_cycles": stated(288, f"{IPU_STACK}: measured, a six-worker copy"),
    "exchange_latency_cycles": derived(19, f"{IPU_STACK}: nearest pair of tiles by its routes"),
    "exchange_latency_cycles_per_row": guessed(1, f"taken over from GC2: {JIA}, sec. 4.1.2"),
    "exchange_latency_cycles_per_column": derived(
        12, f"{IPU_STACK}: 165 between the farthest pair by its routes, less all else"
    ),
    "exchange_latency_cycles_across": guessed(18, f"taken over from GC2: {IPU_RESEARCH}"),
    "external_sync_cycles": stated(600, f"{IPU_STACK}, quoting Poplar's target"),
    "n_bytes_exchange_code_per_phase": derived(
        28, f"{IPU_STACK}: 9 words for a simple transfer, less two controls of its one fragment"
    ),
    "n_bytes_exchange_code_per_send_fragment": stated(8, f"{IPU_STACK}: 4 to 8 bytes"),
    "n_bytes_exchange_code_per_receive_control": stated(
        4, f"{IPU_STACK}: delaypic, delayxpic; sendpicp is both, in 8; rows that the SDK emits"
    ),
    "n_tiles_per_numbering_step": stated(2, f"{IPU_STACK}: ids snake in pairs"),
}

_GC2 = (
    _COMMON
    | _as_on("C600", _C600_ONLY)
    | {
        "arch": stated("ipu1", POPLIBS),
        "n_tiles": stated(1216, f"{JIA}; {IPU_RESEARCH}; 64 more on the die are spare"),
        "clock_hz": stated(1.6e9, f"{JIA}, the system measured"),
        "n_bytes_per_tile": stated(256 * KIB, JIA),
        "n_bytes_reserved_per_tile": derived(8 * KIB, f"{JIA}, sec. 4.2.2: 248 of 256 KiB usable"),
        "n_bytes_region0": stated(128 * KIB, IPU_RESEARCH),
        "n_bytes_region1": stated(128 * KIB, IPU_RESEARCH),
        "memory_base_address": stated(0x40000, IPU_RESEARCH),
        "on_tile_copy_setup_cycles": derived(
            19, f"{JIA}, tables 4.1-4.3: a local copy takes 12 ns"
        ),
        "one_word_copy_cycles": derived(19, f"{JIA}, tables 4.1-4.3: a local copy takes 12 ns"),
        "n_receivers_for_double_width": derived(
            4, f"{JIA}, table 4.9: 6.35 GB/s each to one or two tiles, 12.6 to four or more"
        ),
        "exchange_latency_cycles": derived(59, f"{JIA}, sec. 4.1.2: 37 ns in a column, at least"),
        "exchange_latency_cycles_per_row": derived(
            1, f"{JIA}, sec. 4.1.2: 37 to 59 ns in a column of 19 rows, for both ends"
        ),
        "exchange_latency_cycles_per_column": derived(
            6, f"{JIA}, sec. 4.1.2: 98 ns between the farthest pair, less all else"
        ),
        "exchange_latency_cycles_across": derived(
            19, f"{IPU_RESEARCH}: 17 or 19 from a column's base to the opposite side"
        ),
        "exchange_fragment_cycles": derived(
            1, f"{JIA}, table 4.11: single words of 608 senders, one each cycle"
        ),
        "compute_set_start_cycles": derived(
            198, f"{POPLIBS}: a supervisor around its workers, in releases of 2020"
        ),
        "sync_cycles": derived(120, f"{JIA}, tables 4.1-4.3: 70 to 80 ns of a phase's 133 ns"),
        "external_sync_cycles": derived(
            480, f"{JIA}, fig. 4.4: 0.43 us in the median less all hops; less sync and on-chip way"
        ),
        "flops_per_cycle_half_half": derived(64, f"{JIA}: 124.5 TFLOP/s / 1216 / 1.6 GHz"),
        "flops_per_cycle_half_float": derived(64, f"{JIA}: 124.5 TFLOP/s / 1216 / 1.6 GHz"),
        "flops_per_cycle_float_float": derived(16, f"{JIA}: 31.1 TFLOP/s / 1216 / 1.6 GHz"),
        "flops_per_cycle_quarter_half": stated(0, "no 8-bit floats before IPU21"),
        "n_conv_units_half_half": stated(8, f"{POPLIBS}, early defaults; {IPU_RESEARCH}"),
        "n_conv_units_half_float": stated(8, f"{POPLIBS}, early defaults"),
        "n_conv_units_float_float": stated(4, f"{POPLIBS}, early defaults"),
        "n_conv_units_quarter_half": stated(0, "no 8-bit floats before IPU21"),
        "weights_per_conv_unit_half": guessed(16, f"taken over from GC200: {POPLIBS}"),
        "weights_per_conv_unit_float": guessed(8, f"taken over from GC200: {POPLIBS}"),
        "weights_per_conv_unit_quarter": stated(0, "no 8-bit floats before IPU21"),
        "conv_unit_pipeline_depth": stated(4, f"{POPLIBS}, early defaults"),
        "n_ipu_links": stated(10, HANLON),
        "ipu_link_efficiency": derived(0.86, f"{JIA}, table 4.6: 27.7 of 32, 55.0 of 64 GB/s"),
        "n_sends_in_flight": derived(
            96,
            f"{JIA}, table 4.3: 1216 words take 2.0 us longer than one over 0.16 us of links, "
            "5.2 us over 0.41",
        ),
        "ipu_link_latency_s": stated(0.16e-6, f"{JIA}, fig. 4.4: each further hop"),
        "host_link_gbytes_per_s": stated(5.9, f"{JIA}, table 4.20: measured, PCIe Gen3 x8"),
        "host_latency_s": stated(8.8e-6, f"{JIA}: least measured"),
        "tdp_watts": stated(150.0, f"{JIA}; {HANLON}"),
        "idle_watts": guessed(38.0, "a quarter of its limit; no measurement found"),
        "energy_pj_per_flop_half": guessed(2.0, "twice Bow's: 16 nm instead of 7 nm"),
        "energy_pj_per_flop_half_float": guessed(2.6, "twice Bow's: 16 nm instead of 7 nm"),
        "energy_pj_per_flop_float": guessed(5.0, "twice Bow's: 16 nm instead of 7 nm"),
        "energy_pj_per_flop_quarter": stated(0.0, "no 8-bit floats before IPU21"),
        "die_area_mm2": stated(800.0, f"{HANLON}: about 800"),
        "n_tiles_per_numbering_step": stated(4, f"{JIA}, fig. 2.2: ids snake in columns of 76"),
    }
)

# Measured on GC2 and on no later chip.
_MEASURED_ON_GC2 = (
    "sync_cycles",
    "one_word_copy_cycles",
    "n_receivers_for_double_width",
    "exchange_fragment_cycles",
    "conv_unit_pipeline_depth",
    "ipu_link_efficiency",
    "n_sends_in_flight",
    "ipu_link_latency_s",
    "host_latency_s",
)

# What GC200, Bow and C600 share: one architecture, and for the last another arithmetic unit.
_MK2 = _COMMON | {
    "n_tiles": stated(1472, f"{GUIDE}; {ARGONNE_2024}"),
    "n_bytes_per_tile": stated(624 * KIB, f"{GUIDE}; {ISA}, sec. 4.1.6"),
    "n_bytes_region0": stated(208 * KIB, f"{GUIDE}; {ISA}, sec. 4.1.6"),
    "n_bytes_region1": stated(416 * KIB, f"{GUIDE}; {ISA}, sec. 4.1.6"),
    "memory_base_address": stated(0x4C000, f"{GUIDE}; {ISA}, sec. 4.1.6"),
    **_as_on("GC2", {key: _GC2[key] for key in _MEASURED_ON_GC2}),
    "flops_per_cycle_half_half": derived(128, f"{ISA}, sec. 2.9.11: both sets of engines"),
    "flops_per_cycle_half_float": derived(64, f"{ISA}, sec. 2.9.11: one set of engines"),
    "flops_per_cycle_float_float": derived(32, f"{ISA}, sec. 2.9.11: both sets of engines"),
    "flops_per_cycle_quarter_half": stated(0, "no 8-bit floats before IPU21"),
    "n_conv_units_half_half": stated(16, f"{POPLIBS}, 1x1 convolution codelets"),
    "n_conv_units_half_float": stated(8, f"{POPLIBS}, 1x1 convolution codelets"),
    "n_conv_units_float_float": stated(16, f"{POPLIBS}, 1x1 convolution estimate: 8 in, 16 out"),
    "n_conv_units_quarter_half": stated(0, "no 8-bit floats before IPU21"),
    "weights_per_conv_unit_half": stated(16, f"{POPLIBS}, 1x1 convolution estimate"),
    "weights_per_conv_unit_float": stated(8, f"{POPLIBS}, 1x1 convolution estimate"),
    "weights_per_conv_unit_quarter": stated(0, "no 8-bit floats before IPU21"),
    "n_ipu_links": stated(10, f"{ESO_2023}; {ARGONNE_2024}"),
    "host_link_gbytes_per_s": stated(16.0, f"{ARGONNE_2024}: PCIe Gen4 x8 to the gateway"),
    "energy_pj_per_flop_half": stated(1.0, f"{ESO_2023}, synthetic data"),
    "energy_pj_per_flop_half_float": stated(1.3, f"{ESO_2023}, synthetic data"),
    "energy_pj_per_flop_float": stated(2.5, f"{ESO_2023}, synthetic data"),
    "energy_pj_per_flop_quarter": stated(0.0, "no 8-bit floats before IPU21"),
    "die_area_mm2": stated(823.0, ANNOUNCEMENT),
    "compute_set_start_cycles": stated(
        0, f"{POPLIBS}: later releases have 11, in the estimates of vertices themselves"
    ),
}

_GC200 = (
    _MK2
    | _as_on("C600", _C600_ONLY)
    | {
        "arch": stated("ipu2", POPLIBS),
        "clock_hz": stated(1.325e9, f"{NOTEBOOK}; a profile in Graphcore's tutorial has 1.33"),
        "tdp_watts": derived(375.0, f"{M2000_SHEET}: a quarter of the 1500 W cap"),
        "idle_watts": guessed(95.0, "a quarter of its limit; no measurement found"),
        "energy_pj_per_flop_half": derived(1.0, f"{ESO_2023}: same energy per flop as Bow"),
        "energy_pj_per_flop_half_float": derived(1.3, f"{ESO_2023}: same energy per flop as Bow"),
        "energy_pj_per_flop_float": derived(2.5, f"{ESO_2023}: same energy per flop as Bow"),
    }
)

_BOW = (
    _MK2
    | _as_on("C600", _C600_ONLY)
    | {
        "arch": stated("ipu2", POPLIBS),
        "clock_hz": stated(1.85e9, f"{BOW_SHEET}; {NOTEBOOK}; some slides have 1.83"),
        "tdp_watts": derived(425.0, f"{BOW_SHEET}: a quarter of the 1700 W cap"),
        "idle_watts": guessed(105.0, "a quarter of its limit; no measurement found"),
        "die_area_mm2": guessed(823.0, f"taken over from GC200: {ANNOUNCEMENT}"),
    }
)

_C600 = (
    _MK2
    | _C600_ONLY
    | {
        "arch": stated("ipu21", POPLIBS),
        "n_tiles": stated(1472, BYTE_MLPERF),
        "clock_hz": derived(
            1.5e9, f"{IPU_STACK}; 280 TFLOP/s / 1472 / 128 is 1.486: {BYTE_MLPERF}"
        ),
        "flops_per_cycle_quarter_half": derived(256, f"{POPLIBS}: f8v8hihov4amp; 560 TFLOP/s"),
        "n_conv_units_quarter_half": stated(16, f"{POPLIBS}, 1x1 convolution estimate"),
        "weights_per_conv_unit_quarter": stated(32, f"{POPLIBS}, 1x1 convolution estimate"),
        "n_ipu_links": stated(4, BYTE_MLPERF),
        "ipu_link_gbytes_per_s": derived(16.0, f"{BYTE_MLPERF}: 1 Tb/s both ways over 4 links"),
        "host_link_gbytes_per_s": guessed(16.0, "PCIe Gen4 x8, as the chip has in an IPU-Machine"),
        "tdp_watts": stated(185.0, BYTE_MLPERF),
        "idle_watts": guessed(46.0, "a quarter of its limit; no measurement found"),
        "energy_pj_per_flop_half": guessed(1.0, f"taken over from Bow: {ESO_2023}"),
        "energy_pj_per_flop_half_float": guessed(1.3, f"taken over from Bow: {ESO_2023}"),
        "energy_pj_per_flop_float": guessed(2.5, f"taken over from Bow: {ESO_2023}"),
        "energy_pj_per_flop_quarter": derived(0.5, f"{ESO_2023}: about half of 16-bit"),
        "die_area_mm2": guessed(823.0, f"taken over from GC200: {ANNOUNCEMENT}"),
    }
)

_N7_DENSITY = derived(24.7, f"{N7_SRAM}; {SRAM_DENSITY}")
_N16_DENSITY = derived(8.4, f"0.34 of the density at 7 nm: {N7_SRAM}")
_MK2_TRANSISTORS = stated(59_334_610_787, HOT_CHIPS_33)


def _with_area(facts: dict[str, Fact]) -> dict[str, Fact]:
    """A chip's facts with those of its area."""
    is_mk1 = facts["arch"].value == "ipu1"
    n_transistors = (
        stated(23_600_000_000, f"{HANLON}: 23.6 billion") if is_mk1 else _MK2_TRANSISTORS
    )
    density = _N16_DENSITY if is_mk1 else _N7_DENSITY
    return facts | _area_facts(facts["die_area_mm2"], n_transistors, density, facts)


CHIPS = MappingProxyType(
    {
        "gc2": make_chip("GC2", _with_area(_GC2)),
        "gc200": make_chip("GC200", _with_area(_GC200)),
        "bow": make_chip("Bow", _with_area(_BOW)),
        "c600": make_chip("C600", _with_area(_C600)),
    }
)

# Poplar's names of architectures, for each the chip its models stand for.
CHIP_OF_ARCH = {"ipu1": "gc2", "ipu2": "gc200", "ipu21": "c600"}


def chip(name: str | Chip) -> Chip:
    """The chip of that name or architecture ("bow", "GC200", "ipu2"); a Chip is returned as it is.

    >>> chip("Bow").n_tiles
    1472
    """
    if isinstance(name, Chip):
        return name
    key = str(name).strip().lower()
    key = CHIP_OF_ARCH.get(key, key)
    if key not in CHIPS:
        raise InvalidMachineModel(
            f"unknown chip {name!r}.", hint=suggest(key, [*CHIPS, *CHIP_OF_ARCH])
        )
    return CHIPS[key]
