"""Compiled models in files: `save`, `compileAndExport`, `load` and `loadExecutable`.

A file is a zip archive. `about.json`, `arguments.pt` and `program.tremula` are data only;
`loadExecutable` reads nothing else. `model.pt` holds the module, its optimiser and the options as
Python pickles: reading it, as `poptorch.load` does, can run code, so load only files you trust.
"""

import io
import json
import os
import pickle
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tremula.base.storage.atomic_file import atomic_file
from tremula.base.version import VERSION
from tremula.frontends.poptorch.enums import ConnectionType
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.executor.compiled import CompiledModel
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options

if TYPE_CHECKING:  # importing the tile compiler is slow
    from tremula.ir.run.tile_cache import StoredTileProgram

DEFAULT_NAME = "model.poptorch"
_ABOUT, _ARGUMENTS, _PROGRAM, _MODEL = "about.json", "arguments.pt", "program.tremula", "model.pt"

# What reading a part of a damaged archive can raise.
_UNREADABLE = (
    KeyError, OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class SavedModel:
    """The contents of a file."""

    training: bool
    options: Options
    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    args: tuple
    kwargs: dict[str, Any]
    rng_state: list[int] | None
    stored: "StoredTileProgram | None"


# -- writing ---------------------------------------------------------------------------------------


def save(
    filename: str | os.PathLike,
    compiled: CompiledModel,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    rng_state: list[int] | None,
    *,
    export_model: bool,
) -> None:
    """Write a compiled model; readers see the whole new file or the old one."""
    path = _checked_path(filename)
    about = {
        "version": VERSION,
        "training": compiled.rule is not None,
        "has_model": export_model,
        "rng_state": rng_state,
    }
    program = compiled.program.tiles.to_save
    with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_ABOUT, json.dumps(about))
        archive.writestr(_ARGUMENTS, _pickled(_arguments_like(compiled)))
        if program is not None:
            _write_program(archive, program)
        if export_model:
            parts = {"model": model, "optimizer": optimizer, "options": compiled.options}
            archive.writestr(_MODEL, _pickled(parts))


def _checked_path(filename: str | os.PathLike) -> Path:
    path = Path(filename)
    if path.is_dir():
        path /= DEFAULT_NAME
        LOGGER.warning("save(): %s is a folder, the model is saved as %s", filename, path)
    return path


def _arguments_like(compiled: CompiledModel) -> tuple[tuple, dict]:
    """The arguments the model was compiled for; of tensors only the shapes and types matter."""
    tensors = [torch.zeros((), dtype=t.dtype).expand(t.shape) for t in compiled.first.tensors]
    return compiled.first.rebuild(tensors)


def _pickled(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _write_program(archive: zipfile.ZipFile, stored: "StoredTileProgram") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _PROGRAM
        from tremula.ir.run.tile_cache import write_program  # lazy: slow to import

        write_program(path, stored)
        archive.write(path, _PROGRAM)


# -- reading ---------------------------------------------------------------------------------------


def load(filename: str | os.PathLike) -> SavedModel:
    """The contents of a file. Its pickles are executed."""
    with _opened(filename) as archive:
        about = _about(archive, filename)
        assert about["has_model"], (
            f"{filename} was saved with export_model=False and holds no model: make one with "
            "poptorch.trainingModel or poptorch.inferenceModel and call its loadExecutable()"
        )
        parts = torch.load(io.BytesIO(_read_part(archive, _MODEL, filename)), weights_only=False)
        saved = io.BytesIO(_read_part(archive, _ARGUMENTS, filename))
        args, kwargs = torch.load(saved, weights_only=False)
        stored = _read_program(archive, filename)
    args, kwargs = _whole((args, kwargs))
    return SavedModel(
        about["training"],
        _online(parts["options"]),
        parts["model"],
        parts["optimizer"],
        args,
        kwargs,
        about["rng_state"],
        stored,
    )


def load_executable(
    filename: str | os.PathLike, *, training: bool
) -> "tuple[tuple, dict, StoredTileProgram | None]":
    """The arguments a model was compiled for, and its tile program if the file has it."""
    with _opened(filename) as archive:
        about = _about(archive, filename)
        if about["training"] != training:
            kinds = ["inference", "training"]
            raise createPoptorchError(
                f"{filename} holds a program for {kinds[about['training']]}, but this model is "
                f"for {kinds[training]}"
            )
        args, kwargs = _whole(_safe_arguments(archive, filename))
        return args, kwargs, _read_program(archive, filename)


def _safe_arguments(archive: zipfile.ZipFile, filename: str | os.PathLike) -> tuple[tuple, dict]:
    try:
        return torch.load(io.BytesIO(_read_part(archive, _ARGUMENTS, filename)), weights_only=True)
    except pickle.UnpicklingError as error:
        raise createPoptorchError(
            f"{filename} was compiled for arguments other than tensors, numbers and text "
            "in tuples, lists and dictionaries. Reading those could run code, which loadExecutable "
            "does not do: call compile() with such arguments instead, or poptorch.load() if you "
            "trust the file."
        ) from error


def _opened(filename: str | os.PathLike) -> zipfile.ZipFile:
    path = Path(filename)
    path = path / DEFAULT_NAME if path.is_dir() else path
    try:
        return zipfile.ZipFile(path)
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        raise createPoptorchError(f"{path} is not a saved PopTorch model: {error}") from error


def _read_part(archive: zipfile.ZipFile, name: str, filename: str | os.PathLike) -> bytes:
    """The bytes of a part, checked; an error says that the file is damaged."""
    try:
        return archive.read(name)
    except _UNREADABLE as error:
        raise createPoptorchError(
            f"{filename} is not a saved PopTorch model, or it is damaged: {name} cannot be read "
            f"({error})"
        ) from error


def _about(archive: zipfile.ZipFile, filename: str | os.PathLike) -> dict[str, Any]:
    try:
        about = json.loads(_read_part(archive, _ABOUT, filename))
    except ValueError as error:
        raise createPoptorchError(f"{filename} is not a saved PopTorch model") from error
    if not isinstance(about, dict) or not about.keys() >= {"version", "training", "has_model"}:
        raise createPoptorchError(f"{filename} is not a saved PopTorch model")
    assert about["version"] == VERSION, (
        f"PopTorch version mismatch: file {filename} was exported with version "
        f"{about['version']}, the current version is {VERSION}"
    )
    return about


def _read_program(
    archive: zipfile.ZipFile, filename: str | os.PathLike
) -> "StoredTileProgram | None":
    if _PROGRAM not in archive.namelist():
        return None
    with tempfile.TemporaryDirectory() as folder:
        from tremula.ir.run.tile_cache import read_program  # lazy: slow to import

        path = Path(folder, "program")
        path.write_bytes(_read_part(archive, _PROGRAM, filename))
        return read_program(path)


def _whole(value: tuple[tuple, dict]) -> tuple[tuple, dict]:
    """Saved tensors repeat one element; the model wants memory of their whole shape."""
    return tree_map(lambda v: v.contiguous() if isinstance(v, Tensor) else v, value)


def _online(options: Options) -> Options:
    """A model compiled without a device runs on the one that is here."""
    options = options.clone()
    if options.connection_type == ConnectionType.Never:
        options.connectionType(ConnectionType.Always)
        options.deleteIfExists("ipu_version")
    return options
