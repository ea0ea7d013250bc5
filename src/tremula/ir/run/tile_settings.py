"""How a tile program is compiled, as plain data; loads without the tile compiler."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tremula.ir.lowering.options import LoweringOptions


@dataclass(frozen=True)
class TileSettings:
    """How a tile program is compiled: the machine, the user's choices, the cache folder."""

    chip: str = "bow"
    n_tiles: int = 0  # of each chip; 0: all it has
    lowering: LoweringOptions = field(default_factory=LoweringOptions)
    engine_options: Mapping[str, object] = field(default_factory=dict)
    recomputes_stages: bool = True  # a pipeline keeps inputs of stages, not all values in them
    recomputation: str | None = None  # without a pipeline: "popart", "ideal", "norms", "everything"
    cache_folder: str | None = None  # where compiled programs are stored, if anywhere
    shows_progress: bool = False
    not_modelled: tuple[str, ...] = ()  # what was requested and this program does without
    warn: Callable[[str], None] = lambda _text: None
