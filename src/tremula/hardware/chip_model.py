"""A chip as plain numbers: every constant that costs, memory and reports are computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from tremula.base.errors import InvalidMachineModel
from tremula.base.types import FLOAT, HALF, QUARTER, Type
from tremula.hardware.constant_records import (
    Fact,
    Value,
    changed_facts,
    check_provenance,
    facts_of,
    make_record,
    quantity,
)

ARCHITECTURES = ("ipu1", "ipu2", "ipu21")
# The data path of the chips that PopLibs' estimators, tables of slots per vector, were made for.
PUBLISHED_DATA_PATH_BYTES = 8

_tile = partial(quantity, group="tile processor")
_memory = partial(quantity, group="tile memory")
_exchange = partial(quantity, group="exchange and sync")
_code = partial(quantity, group="code and stacks on a tile")
_arithmetic = partial(quantity, group="matrix unit, per tile", may_be_zero=True)
_link = partial(quantity, group="links and host")
_power = partial(quantity, group="power")
_layout = partial(quantity, group="floor plan")
_area = partial(quantity, group="area", may_be_zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One chip. Its fields are plain numbers; `facts` says where each comes from.

    Change a chip with `replace`, or read one of your own with `load_chip`. Chips with equal
    numbers are equal, whatever their provenance.
    """

    name: str

    arch: str = _tile("", "instruction set", choices=ARCHITECTURES)
    n_tiles: int = _tile("tiles", "tiles a program can use")
    n_workers: int = _tile("workers/tile", "hardware threads that issue in turn")
    clock_hz: float = _tile("Hz", "clock of tiles and exchange")
    data_path_bytes: int = _tile("B", "width of a register pair, a load and a vector")
    instruction_bytes: int = _tile("B", "size of one instruction")
    rpt_count_max: int = _tile("iterations", "longest hardware repeat loop")
    n_stride_bits: int = _tile("bits", "signed stride of a post-incrementing access")
    flops_per_cycle_vector_float: int = _tile("flop/cycle", "vector multiply-add, 32-bit")
    flops_per_cycle_vector_half: int = _tile("flop/cycle", "vector multiply-add, 16-bit")

    n_bytes_per_tile: int = _memory("B", "memory of a tile, all of it")
    n_bytes_reserved_per_tile: int = _memory("B", "kept by the system", may_be_zero=True)
    n_bytes_region0: int = _memory("B", "region that can hold code; not interleaved")
    n_bytes_region1: int = _memory("B", "interleaved region; data only", may_be_zero=True)
    n_bytes_memory_element: int = _memory("B", "bank: one access per cycle")
    memory_base_address: int = _memory("B", "address of a tile's first byte", may_be_zero=True)
    load_bytes_per_cycle: int = _memory("B/cycle", "loads: two 64-bit, or one 128-bit interleaved")
    store_bytes_per_cycle: int = _memory("B/cycle", "stores")
    atomic_store_bytes: int = _memory("B", "smallest store; two workers must not share one")
    memcpy_bytes_per_cycle: int = _memory("B/cycle", "copy within a tile")
    on_tile_copy_setup_cycles: int = _memory("cycles", "start of a copy by all workers of a tile")
    one_word_copy_cycles: int = _memory("cycles", "copy of a word within a tile, by one worker")

    exchange_bytes_per_cycle: float = _exchange("B/cycle", "per tile, sent and received at once")
    n_tiles_per_exchange_bus: int = _exchange(
        "tiles", "share a bus: equal data comes twice as fast"
    )
    n_receivers_for_double_width: int = _exchange(
        "tiles", "least number of receivers of data that comes twice as fast"
    )
    exchange_latency_cycles: int = _exchange("cycles", "between neighbours, once per phase")
    exchange_latency_cycles_per_row: int = _exchange(
        "cycles", "more for each row a tile is away from the exchange", may_be_zero=True
    )
    exchange_latency_cycles_per_column: int = _exchange(
        "cycles", "more for each column between two tiles", may_be_zero=True
    )
    exchange_latency_cycles_across: int = _exchange(
        "cycles", "more to the other side of the exchange", may_be_zero=True
    )
    exchange_fragment_cycles: int = _exchange("cycles", "control per incoming fragment")
    sync_cycles: int = _exchange("cycles", "sync of all tiles of a chip")
    compute_set_start_cycles: int = _tile(
        "cycles", "control that starts a compute set on its tiles", may_be_zero=True
    )
    external_sync_cycles: int = _exchange("cycles", "sync of several chips, or with the host")

    n_bytes_worker_stack: int = _code("B/worker", "stack of a worker")
    n_bytes_supervisor_stack: int = _code("B", "stack of the supervisor")
    n_bytes_exchange_code_per_phase: int = _code("B", "code of one phase: sync and return")
    n_bytes_exchange_code_per_send_fragment: int = _code("B", "code to send a fragment")
    n_bytes_exchange_code_per_receive_control: int = _code(
        "B", "code that selects a sender, or a place for what it sends"
    )

    flops_per_cycle_half_half: int = _arithmetic("flop/cycle", "half inputs, half partials")
    flops_per_cycle_half_float: int = _arithmetic("flop/cycle", "half inputs, float partials")
    flops_per_cycle_float_float: int = _arithmetic("flop/cycle", "float inputs and partials")
    flops_per_cycle_quarter_half: int = _arithmetic("flop/cycle", "8-bit inputs, half partials")
    n_conv_units_half_half: int = _arithmetic("units", "output channels at once")
    n_conv_units_half_float: int = _arithmetic("units", "output channels at once")
    n_conv_units_float_float: int = _arithmetic("units", "output channels at once")
    n_conv_units_quarter_half: int = _arithmetic("units", "output channels at once")
    weights_per_conv_unit_half: int = _arithmetic("weights", "input channels of a unit")
    weights_per_conv_unit_float: int = _arithmetic("weights", "input channels of a unit")
    weights_per_conv_unit_quarter: int = _arithmetic("weights", "input channels of a unit")
    conv_unit_coeff_load_bytes_per_cycle: int = _arithmetic("B/cycle", "weights, from region 1")
    conv_unit_pipeline_depth: int = _arithmetic("results", "results in flight in a unit")

    n_ipu_links: int = _link("links", "links to other chips", may_be_zero=True)
    ipu_link_gbytes_per_s: float = _link("GB/s", "one link, one direction, nominal")
    ipu_link_efficiency: float = _link("", "payload share of the nominal rate", at_most=1)
    n_sends_in_flight: int = _link("messages", "under way to other chips at once")
    ipu_link_latency_s: float = _link("s", "one hop")
    host_link_gbytes_per_s: float = _link("GB/s", "chip to host or gateway, one direction")
    host_latency_s: float = _link("s", "start of a transfer with the host")

    tdp_watts: float = _power("W", "the chip at its limit")
    idle_watts: float = _power("W", "drawn whatever the chip does: leakage, clocks, fans")
    energy_pj_per_flop_half: float = _power("pJ/flop", "half inputs, half in memory")
    energy_pj_per_flop_half_float: float = _power("pJ/flop", "half inputs, float in memory")
    energy_pj_per_flop_float: float = _power("pJ/flop", "float throughout")
    energy_pj_per_flop_quarter: float = _power("pJ/flop", "8-bit inputs", may_be_zero=True)
    energy_pj_per_byte_mm: float = _power("pJ/B/mm", "moving data across the chip")
    energy_pj_per_byte_link: float = _power("pJ/B", "over a link to another chip")
    energy_pj_per_byte_dram: float = _power("pJ/B", "from or to streaming memory or the host")

    die_area_mm2: float = _layout("mm2", "area of the chip")
    n_columns: int = _layout("columns", "half of them on each side of the exchange")
    n_tiles_per_supertile: int = _layout("tiles", "block of tiles in a row of a column")
    n_tiles_per_numbering_step: int = _layout("tiles", "numbered in one row before the next")

    n_transistors: int = _area("", "transistors of the die")
    sram_mib_per_mm2: float = _area("Mib/mm2", "density of memory, with its periphery")
    tile_logic_mm2: float = _area("mm2", "a tile without its memory")
    exchange_mm2_per_tile: float = _area("mm2", "a tile's share of the exchange")
    link_mm2: float = _area("mm2", "one link to another chip")
    io_mm2: float = _area("mm2", "host link, clocks, pads: what does not grow with the rest")

    provenance: tuple[Fact, ...] = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        check_provenance(self)
        _check_sizes(self)
        _check_memory(self)
        _check_numbering(self)

    def __repr__(self) -> str:
        return f"Chip({self.name!r})"

    @property
    def facts(self) -> Mapping[str, Fact]:
        """Every constant with unit, provenance and source, by name."""
        return facts_of(self)

    def replace(self, *, name: str | None = None, **changes: Value | Fact) -> "Chip":
        """This chip with some constants changed.

        A new `n_bytes_per_tile` alone scales both regions, in whole memory elements.

        >>> from tremula.hardware import chip
        >>> big = chip("bow").replace(name="Big Bow", n_tiles=2944)
        >>> big.facts["n_tiles"].source
        'changed from Bow'
        """
        changed = changed_facts(self, changes)
        facts = {**self.facts, **changed.facts, **_scaled_regions(self, changed.facts)}
        return make_record(Chip, name or changed.name, facts)

    def flops_per_cycle(self, inputs: Type, partials: Type) -> int:
        """Matrix-unit flops per cycle and tile; 0 if the chip has no such unit."""
        rates = {
            (HALF, HALF): self.flops_per_cycle_half_half,
            (HALF, FLOAT): self.flops_per_cycle_half_float,
            (FLOAT, FLOAT): self.flops_per_cycle_float_float,
            (QUARTER, HALF): self.flops_per_cycle_quarter_half,
        }
        return self._of_types("flops_per_cycle", rates, inputs, partials)

    def n_conv_units(self, inputs: Type, partials: Type) -> int:
        """Output channels the matrix unit computes at once; 0 if the chip has no such unit."""
        units = {
            (HALF, HALF): self.n_conv_units_half_half,
            (HALF, FLOAT): self.n_conv_units_half_float,
            (FLOAT, FLOAT): self.n_conv_units_float_float,
            (QUARTER, HALF): self.n_conv_units_quarter_half,
        }
        return self._of_types("n_conv_units", units, inputs, partials)

    def weights_per_conv_unit(self, inputs: Type) -> int:
        """Input channels of one unit; 0 if the chip has no such unit."""
        weights = {
            (HALF,): self.weights_per_conv_unit_half,
            (FLOAT,): self.weights_per_conv_unit_float,
            (QUARTER,): self.weights_per_conv_unit_quarter,
        }
        return self._of_types("weights_per_conv_unit", weights, inputs)

    @property
    def has_quarter_units(self) -> bool:
        """Whether it multiplies and converts 8-bit floats by instructions."""
        return self.flops_per_cycle_quarter_half > 0

    def vector_width(self, element: Type) -> int:
        """Elements in one vector operation."""
        return max(1, self.data_path_bytes // element.n_bytes)

    def published_width(self, n_elems: int) -> int:
        """Elements of a vector, where a published estimator handles `n_elems` at once.

        A wider data path takes more at once; a loop over single elements stays one.
        """
        if n_elems == 1:
            return 1
        return max(1, n_elems * self.data_path_bytes // PUBLISHED_DATA_PATH_BYTES)

    def peak_flops(self, inputs: Type, partials: Type) -> float:
        """Flops per second of the whole chip."""
        return self.flops_per_cycle(inputs, partials) * self.n_tiles * self.clock_hz

    @property
    def n_threads(self) -> int:
        return self.n_tiles * self.n_workers

    @property
    def n_bytes_total(self) -> int:
        """Memory of all tiles."""
        return self.n_tiles * self.n_bytes_per_tile

    @property
    def n_bytes_available_per_tile(self) -> int:
        """What a program can use of a tile's memory."""
        return self.n_bytes_per_tile - self.n_bytes_reserved_per_tile

    @property
    def n_memory_elements(self) -> int:
        return self.n_bytes_per_tile // self.n_bytes_memory_element

    @property
    def interleaved_memory_element_index(self) -> int:
        """The first memory element of region 1."""
        return self.n_bytes_region0 // self.n_bytes_memory_element

    def _of_types(self, what: str, known: Mapping[tuple[Type, ...], int], *types: Type) -> int:
        if types not in known:
            raise InvalidMachineModel(
                f"{self.name!r} has no {what} for {_spelled(types)}.",
                hint=f"its matrix unit knows {', '.join(map(_spelled, known))}",
            )
        return known[types]


def _spelled(types: tuple[Type, ...]) -> str:
    return " → ".join(t.spelling for t in types)


def make_chip(name: str, facts: Mapping[str, Fact]) -> Chip:
    """A chip from one fact for every constant."""
    return make_record(Chip, name, facts)


def _scaled_regions(chip: Chip, changed: Mapping[str, Fact]) -> dict[str, Fact]:
    """Regions that follow a new memory size, unless the user gave them."""
    if "n_bytes_per_tile" not in changed:
        return {}
    if "n_bytes_region0" in changed or "n_bytes_region1" in changed:
        return {}
    fact = changed["n_bytes_per_tile"]
    element = changed.get("n_bytes_memory_element", chip.facts["n_bytes_memory_element"]).value
    if type(fact.value) is not int or type(element) is not int or element < 1:
        return {}  # make_record says what is wrong with them
    if fact.value < 1 or fact.value % element:
        raise InvalidMachineModel(
            f"n_bytes_per_tile of {chip.name!r} is {fact.value}, expected a multiple of its memory "
            f"element, {element}.",
            hint="choose a multiple, or change n_bytes_memory_element too",
        )
    n_elements = fact.value // element
    # Interleaving works on pairs of elements.
    n_pairs = round(n_elements * chip.n_bytes_region1 / chip.n_bytes_per_tile / 2)
    n_pairs = min(n_pairs, (n_elements - 1) // 2)
    source = "scaled with n_bytes_per_tile, in whole memory elements"
    return {
        "n_bytes_region0": Fact((n_elements - 2 * n_pairs) * element, "derived", source),
        "n_bytes_region1": Fact(2 * n_pairs * element, "derived", source),
    }


# Larger chips are mistakes: a program has columns with a row for each tile, and for each worker.
MAX_TILES, MAX_WORKERS = 1 << 20, 1 << 10


def _check_sizes(chip: Chip) -> None:
    for key, most in (("n_tiles", MAX_TILES), ("n_workers", MAX_WORKERS)):
        if getattr(chip, key) > most:
            raise InvalidMachineModel(
                f"{key} of {chip.name!r} is {getattr(chip, key):,}, expected at most {most:,}.",
                hint="a chip of this size cannot be modelled: use several chips",
            )


def _check_memory(chip: Chip) -> None:
    together = chip.n_bytes_region0 + chip.n_bytes_region1
    if together != chip.n_bytes_per_tile:
        raise InvalidMachineModel(
            f"the regions of {chip.name!r} are {chip.n_bytes_region0} + {chip.n_bytes_region1} = "
            f"{together} B, expected n_bytes_per_tile = {chip.n_bytes_per_tile} B.",
            hint="change n_bytes_per_tile alone and the regions follow, or give all three",
        )
    for key in ("n_bytes_region0", "n_bytes_region1"):
        if getattr(chip, key) % chip.n_bytes_memory_element:
            raise InvalidMachineModel(
                f"{key} of {chip.name!r} is {getattr(chip, key)} B, expected a multiple of its "
                f"memory element, {chip.n_bytes_memory_element} B.",
                hint="choose a multiple, or change n_bytes_memory_element too",
            )
    if chip.n_bytes_reserved_per_tile >= chip.n_bytes_per_tile:
        raise InvalidMachineModel(
            f"{chip.name!r} reserves {chip.n_bytes_reserved_per_tile} B of "
            f"{chip.n_bytes_per_tile} B per tile: nothing is left.",
            hint="lower n_bytes_reserved_per_tile",
        )


def _check_numbering(chip: Chip) -> None:
    if chip.n_tiles_per_supertile % chip.n_tiles_per_numbering_step:
        raise InvalidMachineModel(
            f"n_tiles_per_numbering_step of {chip.name!r} is {chip.n_tiles_per_numbering_step}, "
            f"expected a divisor of n_tiles_per_supertile = {chip.n_tiles_per_supertile}.",
            hint="change both together",
        )
