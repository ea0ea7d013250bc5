"""Every quantity that a view shows: its name, its unit, what it is of, and its definition.

Titles of columns and figures and their tooltips are made from this table, on the page and in the
terminal, so that one word has one meaning. docs/vision-design.md defines how they are measured.
"""

from dataclasses import asdict, dataclass

from tremula.compiler.report.phases import PHASES


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column or figure. `unit`: cycles, bytes, count, share, seconds, joules, ratio or name."""

    title: str
    unit: str
    of: str  # the whole or the scope a number belongs to; empty where its row says that
    definition: str


ALL_CHIPS, PATH, ONCE = "of all chips", "of the critical path", "of one execution"
MEAN_CHIP, TILE_PEAKS = "of the mean chip", "of each tile's fullest moment"
ALL_TILES, ONE_STEP, ONE_TILE = "of all tiles", "of one step", "of one tile"

_PHASE = {
    "compute": ("Compute", "the slowest tile of each step computes"),
    "exchange": ("Exchange", "data moves between tiles of a chip"),
    "links": ("Between chips", "data moves between chips"),
    "host": ("Host", "data moves from and to the host"),
    "sync": ("Sync", "tiles meet before a step"),
    "waiting": ("Waiting", "a chip waits for other chips, or has no work"),
}


def _phases() -> dict[str, Quantity]:
    """Each phase in four ways: of all chips, on the critical path, once, and of the mean chip."""
    result: dict[str, Quantity] = {}
    for name, (title, about) in _PHASE.items():
        text = f"Cycles in which {about}"
        everything = f"{text}, in everything that ran, added over all chips."
        result[name] = Quantity(title, "cycles", ALL_CHIPS, everything)
        mean = f"{text}, in everything that ran: the mean over chips."
        result[f"mean_{name}"] = Quantity(f"{title} per chip", "cycles", MEAN_CHIP, mean)
        if name not in PHASES:
            continue
        on_path = f"{text}, as far as they are on the critical path."
        result[f"path_{name}"] = Quantity(f"{title}, critical path", "cycles", PATH, on_path)
        once = f"{text}, in one execution on the chip that takes longest for the step."
        result[f"once_{name}"] = Quantity(f"{title}, once", "cycles", ONCE, once)
    return result


def _named(*rows: tuple[str, str, str]) -> dict[str, Quantity]:
    """Columns that name something: key, title, definition."""
    return {key: Quantity(title, "name", "", text) for key, title, text in rows}


QUANTITIES: dict[str, Quantity] = {
    **_phases(),
    "total_cycles": Quantity(
        "Total cycles", "cycles", "of the run",
        "The engine's clock at the end, when the last chip is done.",
    ),
    "cycles": Quantity(
        "Cycles", "cycles", "of the total",
        "Cycles that the chip spends on it, in everything that ran. They add up to the total.",
    ),
    "share": Quantity("Share", "share", "of the total", "Its cycles ÷ total cycles."),
    "busy_cycles": Quantity(
        "Busy cycles", "cycles", ALL_CHIPS,
        "Cycles that chips spend on it, in everything that ran, added over all chips, on the "
        "critical path or not.",
    ),
    "busy_share": Quantity(
        "Of all chips", "share", ALL_CHIPS, "Its busy cycles ÷ (chips × total cycles)."
    ),
    "path_cycles": Quantity(
        "Critical path", "cycles", PATH,
        "Cycles of the total in which everything else waits for it: the run ends earlier only if "
        "these become fewer. They add up to the total.",
    ),
    "path_share": Quantity(
        "Of critical path", "share", PATH, "Its cycles on the critical path ÷ total cycles."
    ),
    "once_cycles": Quantity(
        "Cycles, once", "cycles", ONCE,
        "Cycles of one execution on the chip that takes longest for the step.",
    ),
    "executed": Quantity("Runs", "count", "", "How often it ran."),
    "difference": Quantity(
        "B − A", "cycles", "of everything that ran",
        "Cycles of report B minus those of report A, for rows of the same name.",
    ),
    "n_steps": Quantity("Steps", "count", "", "Steps of the program in it, each counted once."),
    "n_flops": Quantity(
        "Flops", "count", ALL_CHIPS,
        "Floating-point operations in everything that ran, as vertices declare them.",
    ),
    "flops_per_cycle": Quantity("Flops/cycle", "ratio", ALL_CHIPS, "Flops ÷ busy cycles."),
    "flops_per_byte": Quantity(
        "Flops/byte", "ratio", ALL_CHIPS, "Flops ÷ bytes that tiles receive."
    ),
    "of_peak": Quantity(
        "Of peak", "share", "of its busy cycles",
        "Cycles its flops would take on all tiles at the peak of their units ÷ its busy cycles.",
    ),
    "of_roofline": Quantity(
        "Of roofline", "share", "of its busy cycles",
        "The best the chip could do, computing or moving ÷ its busy cycles.",
    ),
    "bound": Quantity("Bound by", "name", "", "The phase that has most of its busy cycles."),
    "balance": Quantity(
        "Tile balance", "share", "of the slowest tile",
        "Mean compute over all tiles ÷ the slowest tile's.",
    ),
    "active_balance": Quantity(
        "Balance of active tiles", "share", "of the slowest tile",
        "Mean compute over tiles that take part ÷ the slowest tile's.",
    ),
    "n_active_tiles": Quantity("Active tiles", "count", ONCE, "Tiles that compute in the step."),
    "parallel_efficiency": Quantity(
        "Parallel efficiency", "share", "of the total",
        "Mean compute over tiles ÷ total cycles.",
    ),
    "moved_bytes": Quantity(
        "Data moved", "bytes", ALL_CHIPS, "Bytes that tiles receive, in everything that ran."
    ),
    "once_bytes": Quantity("Data in, once", "bytes", ONCE, "Bytes that tiles receive."),
    "route_bytes": Quantity(
        "Bytes received", "bytes", ONCE, "Bytes that the receiving tile gets from the sending one."
    ),
    "n_vertices": Quantity("Vertices", "count", "", "Vertices in it, each counted once."),
    "vertex_cycles": Quantity(
        "Vertex cycles", "cycles", "of all vertices",
        "Cycles of all its vertices, added up, in everything that ran.",
    ),
    # Pipelines
    "n_visits": Quantity("Visits", "count", "", "How often the stage ran, for a micro-batch each."),
    "cycles_per_visit": Quantity(
        "A visit", "cycles", "of one visit",
        "Cycles from its first step to its last, the median of all visits.",
    ),
    "awaited_cycles": Quantity(
        "Others wait for it", "cycles", ALL_CHIPS,
        "Cycles that other chips wait while the chip they wait for is in this stage, added over "
        "those chips. Stages, transfers between them and what runs outside the pipeline together "
        "have all waiting.",
    ),
    "n_waits": Quantity("Waits", "count", "", "Stretches of waiting inside passes."),
    "wait_cycles": Quantity(
        "Waits for", "cycles", "of this chip", "Cycles this chip waits for it inside passes."
    ),
    "longest_wait": Quantity("Longest wait", "cycles", "of this chip", "The longest of them."),
    "bubbles": Quantity(
        "Bubbles", "share", "of all chips in passes",
        "Waiting inside passes of the pipeline ÷ (chips × time of passes).",
    ),
    "fill_and_flush": Quantity(
        "Fill and flush", "share", "of passes",
        "Time before the last stage begins and after the first has ended ÷ time of passes.",
    ),
    "slowest_stage": Quantity(
        "Slowest stage", "name", "", "The stage with the longest median visit."
    ),
    "n_stages": Quantity(
        "Stages × micro-batches", "name", "", "Stages, and micro-batches in one pass."
    ),
    # Memory
    "n_bytes": Quantity("Bytes", "bytes", ALL_TILES, "Bytes of it on all tiles together."),
    "made_bytes": Quantity(
        "Made bytes", "bytes", ALL_TILES, "Bytes of the variables that it made, on all tiles."
    ),
    "largest_on_tile": Quantity(
        "Most on a tile", "bytes", ONE_TILE, "Bytes of it on the tile that has most."
    ),
    "n_tiles": Quantity("Tiles", "count", "", "Tiles it has bytes on."),
    "tile_bytes": Quantity("Bytes here", "bytes", ONE_TILE, "Bytes of it on this tile."),
    "tile_needs": Quantity(
        "Needs", "bytes", ONE_TILE, "What the tile must have, gaps included."
    ),
    "tile_share": Quantity("Of its memory", "share", ONE_TILE, "Needs ÷ memory of a tile."),
    "tile_always_live": Quantity(
        "Always live here", "bytes", ONE_TILE, "Bytes in use on this tile during the whole run."
    ),
    "tile_temporary": Quantity(
        "Temporary at its peak", "bytes", ONE_TILE,
        "Temporary bytes of this tile at its own fullest moment.",
    ),
    "tile_compute": Quantity(
        "Computes", "cycles", ONE_TILE, "Cycles this tile computes, in everything that ran."
    ),
    "tile_spread": Quantity(
        "Apart", "bytes", "of these tiles", "The most on one of these tiles, less the least."
    ),
    "always_live": Quantity(
        "Always live", "bytes", ALL_TILES,
        "Bytes that are in use during the whole run, so nothing shares them.",
    ),
    "temporary_peaks": Quantity(
        "Temporary at tile peaks", "bytes", TILE_PEAKS,
        "Temporary bytes of each tile at its own fullest moment, added over tiles. Tiles have "
        "those moments at different steps, so this is more than all tiles need at any one step.",
    ),
    "temporary_at_step": Quantity(
        "Temporary at the step", "bytes", ONE_STEP,
        "Temporary bytes of all tiles together during one step.",
    ),
    "temporary_peak": Quantity(
        "Temporary, largest step", "bytes", ONE_STEP,
        "Temporary bytes of all tiles together during the step that has most.",
    ),
    "bytes_at_peaks": Quantity(
        "At tile peaks", "bytes", TILE_PEAKS,
        "Bytes always live, and temporary ones at each tile's fullest moment.",
    ),
    "memory_total": Quantity(
        "Memory, all tiles", "bytes", ALL_TILES,
        "What each tile must have, gaps included, added over tiles.",
    ),
    "memory_largest": Quantity(
        "Fullest tile", "bytes", ONE_TILE, "Bytes of the tile that needs most, gaps included."
    ),
    "fits": Quantity("Fits", "name", "", "Whether what every tile needs fits on it."),
    "available_bytes": Quantity("Available", "bytes", ONE_TILE, "Memory of a tile."),
    "saved_bytes": Quantity(
        "Peak falls by", "bytes", "of the peak",
        "How far the peak falls if this variable takes no memory; then another step may be the "
        "fullest, so this may be less than its bytes.",
    ),
    "saved_share": Quantity("Of the peak", "share", "of the peak", "Peak falls by ÷ the peak."),
    "code_bytes": Quantity("Code per tile", "bytes", ONE_TILE, "Code of the codelet."),
    "state_bytes": Quantity(
        "State, all tiles", "bytes", ALL_TILES, "What its vertices need besides their data."
    ),
    "address": Quantity("Address", "name", "", "Where on the tile it begins."),
    "at_peak": Quantity("At its peak", "name", "", "Whether it is live at the tile's peak."),
    "lives": Quantity("Lives", "name", "", "The first and the last step in which it is live."),
    "n_writes": Quantity("Writes", "count", "", "Steps that write it."),
    "n_reads": Quantity("Reads", "count", "", "Steps that read it."),
    # What if, energy, host
    "time": Quantity("Time", "seconds", "of the run", "Total cycles ÷ the clock."),
    "speed": Quantity("Speed", "ratio", "of the run", "Time now ÷ time of this point."),
    "joules": Quantity("Energy", "joules", ALL_CHIPS, "Energy of all chips during the run."),
    "n_events": Quantity("Times", "count", "", "How often the event was recorded."),
    "host_time": Quantity("Together", "seconds", "of the trace", "Durations, added up."),
    "host_share": Quantity(
        "Of the trace", "share", "of the trace", "Durations, added up ÷ length of the trace."
    ),
    "host_mean": Quantity("Mean", "seconds", "of one event", "Mean duration."),
    "host_longest": Quantity("Longest", "seconds", "of one event", "The longest duration."),
    **_named(
        ("tile", "Tile", "A tile; of several chips, by its chip and its number there."),
        ("tile_peak_step", "Peak step", "The step at which the tile needs most."),
        ("from_tile", "From", "The tile that sends."),
        ("to_tile", "To", "The tile that receives."),
        ("number", "#", "The step's number, in the order of the program."),
        ("step", "Step", "A step of the program: all tiles sync, exchange, compute."),
        ("operation", "Operation", "Steps that one call of an operation made."),
        ("module", "Module", "Steps that share the first part of their names."),
        ("line", "Line", "The line of the user's program that made it."),
        ("program", "Program", "A node of the program tree, with everything in it."),
        ("type", "Type", "What kind of thing it is."),
        ("shape", "Shape", "Its dimensions."),
        ("critical_tile", "Critical tile", "The tile that takes longest in the step."),
        ("variable", "Variable", "A tensor of the tile program."),
        ("tensor", "Tensor", "A variable, as operations make and use it."),
        ("category", "Category", "What bytes are for."),
        ("codelet", "Codelet", "The code that a vertex runs."),
        ("provenance", "Costs are", "How far the codelet's cost can be trusted."),
        ("stage", "Stage", "A stage of the pipeline."),
        ("chip", "Chip", "The chip, by its number."),
        ("awaited", "For", "What the awaited chip does meanwhile."),
        ("way", "Is", "Whether the operation uses or makes it."),
        ("neighbour", "From or to", "The operation at the other end."),
        ("made_by", "Made by", "Operations that write it."),
        ("used_by", "Used by", "Operations that read it."),
        ("event", "Event", "What the host did."),
        ("channel", "Channel", "Who recorded it."),
        ("constant", "Constant", "A constant of the chip that is varied."),
        ("answer", "Answer", "A column of the answer to the query."),
    ),
}  # fmt: skip


def quantity_facts() -> dict[str, dict[str, str]]:
    """The table as the page reads it."""
    return {key: asdict(quantity) for key, quantity in QUANTITIES.items()}


def heading(key: str) -> str:
    """The title of a column in a terminal."""
    return QUANTITIES[key].title.lower()
