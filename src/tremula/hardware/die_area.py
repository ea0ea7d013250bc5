"""Area of a chip by part: what a change of tiles, memory or links makes of the die."""

from dataclasses import dataclass

from tremula.hardware.chip_model import Chip
from tremula.hardware.constant_records import quantities

AREA_CONSTANTS = tuple(
    name for name, field in quantities(Chip).items() if field.metadata["group"] == "area"
)


@dataclass(frozen=True, slots=True)
class DieArea:
    """Square millimetres of a chip, by part."""

    logic: float
    memory: float
    exchange: float
    links: float
    io: float

    @property
    def total(self) -> float:
        return self.logic + self.memory + self.exchange + self.links + self.io


def logic_transistors_per_mm2(chip: Chip) -> float:
    """Transistors that are not in memory cells, six a bit, by the area that is not memory.

    A check of the parts: logic at 7 nm has 20 to 90 million.

    >>> from tremula.hardware import chip
    >>> f"{logic_transistors_per_mm2(chip('gc200')):.1e}"
    '2.7e+07'
    """
    in_cells = 6 * 8 * chip.n_tiles * chip.n_bytes_per_tile
    area = die_area(chip)
    return (chip.n_transistors - in_cells) / (area.total - area.memory)


def die_area(chip: Chip) -> DieArea:
    """The area of a chip's parts; that of a known chip is its die's.

    Tiles, memory and links are counted at their areas on the known chip. A tile whose matrix unit
    or data path is changed keeps its area: no public figure says what they take.

    >>> from tremula.hardware import chip
    >>> round(die_area(chip("gc200")).total)
    823
    """
    n_mib = chip.n_tiles * chip.n_bytes_per_tile * 8 / 2**20
    return DieArea(
        logic=chip.n_tiles * chip.tile_logic_mm2,
        memory=n_mib / chip.sram_mib_per_mm2 if chip.sram_mib_per_mm2 else 0.0,
        exchange=chip.n_tiles * chip.exchange_mm2_per_tile,
        links=chip.n_ipu_links * chip.link_mm2,
        io=chip.io_mm2,
    )
