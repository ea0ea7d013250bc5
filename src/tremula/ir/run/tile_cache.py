"""Compiled tile programs in files: data only, checked when read, found again by their content."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, fx

from tremula.base import version
from tremula.base.code_fingerprint import code_fingerprint
from tremula.base.errors import FileLoadError
from tremula.compiler.executable.executable import Executable, validate
from tremula.compiler.file.codec import read_record, record, write_record
from tremula.ir.bodies import all_nodes
from tremula.ir.locations import HostHandle
from tremula.ir.nodes import schema_name
from tremula.ir.op_table import code_of_users
from tremula.ir.origin import ORIGIN
from tremula.ir.run.session import Handles
from tremula.ir.step import CapturedStep, StepSlot, bytes_of

FILE_KIND = "poptorch model"
SUFFIX = ".tremula"
_STALE_SECONDS = 24 * 3600  # an unfinished file this old was left by a process that was killed


@record
@dataclass(frozen=True)
class StoredTileProgram:
    """An executable with the names under which a session finds its tensors and streams."""

    key: str  # empty until the program is to be saved
    executable: Executable
    held_handles: tuple[tuple[str, int, str, int, int], ...]  # kind, index, HostHandle
    input_handles: tuple[str, ...]
    output_handles: tuple[tuple[str, int, str, str], ...]  # kind, index and name, handle
    # Code of the script, by handle; not written to files.
    host_functions: dict[str, Callable] = field(default_factory=dict, init=False, compare=False)

    @staticmethod
    def of(executable: Executable, handles: Handles) -> "StoredTileProgram":
        stored = StoredTileProgram(
            "",
            executable,
            tuple(
                (kind, index, place.handle, place.row, place.n_shards)
                for (kind, index), place in handles.state_handles.items()
            ),
            tuple(handles.inputs),
            tuple((slot.kind, slot.index, slot.name, handle) for slot, handle in handles.outputs),
        )
        stored.host_functions.update(handles.host_functions)
        return stored

    def with_key(self, key: str) -> "StoredTileProgram":
        """This program with the key under which a file has it."""
        stored = replace(self, key=key)
        stored.host_functions.update(self.host_functions)
        return stored

    @property
    def state_handles(self) -> dict[tuple[str, int], HostHandle]:
        return {
            (kind, index): HostHandle(handle, row, n_shards)
            for kind, index, handle, row, n_shards in self.held_handles
        }

    @property
    def inputs(self) -> list[str]:
        return list(self.input_handles)

    @property
    def outputs(self) -> list[tuple[StepSlot, str]]:
        return [(StepSlot(kind, index, name), h) for kind, index, name, h in self.output_handles]


def read_program(path: str | os.PathLike) -> StoredTileProgram:
    """Read a file; raises FileLoadError for anything but an intact tile program."""
    stored = read_record(path, FILE_KIND, StoredTileProgram)
    validate(stored.executable, str(path))
    return stored


def write_program(path: str | os.PathLike, program: StoredTileProgram) -> None:
    """Write a file; others see the whole of it or nothing."""
    assert program.key, "without it no model would use the file"
    write_record(path, FILE_KIND, program)


class ProgramCache:
    """A folder of tile programs. Several processes may share it: files appear whole."""

    def __init__(self, folder: str | os.PathLike, warn: Callable[[str], None]):
        self.folder = Path(folder)
        self.warn = warn

    def path_of(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def find(self, key: str) -> StoredTileProgram | None:
        """The program of this key, if the folder has it; a damaged file is a cache miss."""
        path = self.path_of(key)
        if not path.exists():
            return None
        try:
            return read_program(path)
        except FileLoadError as error:
            self.warn(f"The cached executable is not used, and made again: {error}")
            return None

    def keep(self, program: StoredTileProgram) -> None:
        """Store a program; if the folder cannot be written to, warn and continue without."""
        with self.writing():
            write_program(self.path_of(program.key), program)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around writing a file: an error of the disk is a warning, old unfinished files go."""
        try:
            yield
            self._remove_leftovers()
        except OSError as error:
            self.warn(f"The executable could not be kept in {self.folder}: {error}")

    def _remove_leftovers(self) -> None:
        for path in self.folder.glob("*.part"):
            try:
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    path.unlink()
            except OSError:  # another process was faster
                continue


def can_be_kept(step: CapturedStep) -> bool:
    """Whether the graph holds all of a program: code of the script is not in it and may change."""
    return not any(
        schema_name(node) in ("tremula::custom_op", "tremula::host_call")
        for node in all_nodes(step)
    )


# -- keys ------------------------------------------------------------------------------------------


def program_key(step: CapturedStep, *choices: object) -> str:
    """A digest of everything a tile program is made from; equal keys mean equal programs.

    Lines of source are left out: a comment above a model does not change the program, so a
    report of a cached one shows the lines of the script that compiled it.
    """
    digest = hashlib.blake2b(digest_size=16)
    for text in (version.VERSION, torch.__version__, np.__version__, _code_fingerprint(), *choices):
        digest.update(f"{text!r}\n".encode())
    for text in code_of_users():
        digest.update(text.encode())
    digest.update(f"{step.inputs}{step.outputs}{step.blocks}{step.rule}\n".encode())
    for node in step.graph.nodes:
        digest.update(_node_text(node).encode())
    for name, value in step.constants.items():
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(bytes_of(value))
    return digest.hexdigest()


def _node_text(node: fx.Node) -> str:
    origin = node.meta.get(ORIGIN)
    place = (
        (
            origin.phase,
            origin.path,
            origin.block,
            origin.attributes,
            origin.choices,
        )
        if origin is not None
        else ()
    )
    values = node.meta.get("val")
    facts = [
        (tuple(v.shape), v.dtype)
        for v in (values if isinstance(values, tuple | list) else [values])
        if isinstance(v, Tensor)
    ]
    return f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {facts} {place}\n"


def _code_fingerprint() -> str:
    """Of all code that makes a program: one compiled by older code is not used."""
    return code_fingerprint("base", "codelets", "compiler", "hardware", "ir", "poplar", "poplibs")
