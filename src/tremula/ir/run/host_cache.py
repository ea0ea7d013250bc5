"""Programs of this computer in an executable cache: a record of each, beside its tile program.

On this computer compiling is capturing, which must be repeated to know which program it is. So a
record saves no time; it says which programs were compiled, and a folder that a script looks into
after a compilation has a file. The tile program is added, under the same key, when it is compiled.
"""

from dataclasses import dataclass
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.compiler.file.codec import read_record, record, write_record
from tremula.ir.run.tensor_names import graph_as_json
from tremula.ir.run.tile_cache import ProgramCache
from tremula.ir.run.tile_program import TileProgram
from tremula.ir.step import CapturedStep

FILE_KIND = "host program"
SUFFIX = ".host.tremula"


@record
@dataclass(frozen=True)
class HostProgramRecord:
    """What was compiled: the captured graph, its inputs and its results."""

    key: str  # of the tile program of the step
    graph: str  # as `PoplarExecutor._debugGetPopartIR` shows it
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def keep_host_program(step: CapturedStep, tiles: TileProgram) -> None:
    """Write the record of a step into the cache folder of its settings, unless it is there."""
    settings = tiles.settings
    if settings.cache_folder is None:
        return
    cache = ProgramCache(settings.cache_folder, settings.warn)
    key = tiles.key
    path = cache.folder / f"{key}{SUFFIX}"
    if path.exists() and _is_intact(path):
        return
    program = HostProgramRecord(
        key,
        graph_as_json(step),
        tuple(slot.name for slot in step.inputs),
        tuple(slot.name for slot in step.outputs),
    )
    with cache.writing():
        write_record(path, FILE_KIND, program)


def _is_intact(path: Path) -> bool:
    try:
        read_record(path, FILE_KIND, HostProgramRecord)
    except FileLoadError:
        return False
    return True
