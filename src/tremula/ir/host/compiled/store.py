"""Compiled functions on disk, in Tremula's cache folder: a text of each, and binaries of kernels.

Files appear whole or not at all, and binaries are named by their content, so processes may write
the same ones at a time. What is damaged or incomplete is compiled again.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from tremula.base.storage.atomic_file import atomic_file
from tremula.base.storage.cache_dir import cache_dir
from tremula.ir.host.compiled.functions import FunctionRecord
from tremula.ir.host.compiled.kernels import Kernel, Launch, LibraryKernel

FOLDER = "compiled"
_OFF = "TORCHINDUCTOR_FORCE_DISABLE_CACHES"
_log = logging.getLogger("tremula.gpu")


def folder() -> Path:
    return cache_dir() / FOLDER


def is_on() -> bool:
    """Whether compiled code may be stored and loaded: PyTorch has a variable against it."""
    return os.environ.get(_OFF, "0") in ("", "0")


# -- binaries --------------------------------------------------------------------------------------


def store_binary(path: Path, suffix: str) -> str:
    """Copy a file into the store; returns its name there."""
    return store_bytes(path.read_bytes(), suffix)


def store_bytes(content: bytes, suffix: str) -> str:
    """Store a binary; returns its name."""
    name = sha256(content).hexdigest() + suffix
    target = folder() / name
    if is_on() and not target.exists():
        _write(target, content)
    return name


def binary_path(name: str) -> Path:
    """The path of a binary; raises ValueError if it is missing or not what was stored."""
    path = folder() / name
    try:
        content = path.read_bytes()
    except OSError:
        raise ValueError(f"{name} is missing") from None
    if sha256(content).hexdigest() != path.stem:
        path.unlink(missing_ok=True)
        raise ValueError(f"{name} is damaged")
    return path


# -- texts -----------------------------------------------------------------------------------------


def write_record(key: str, content: Mapping[str, object]) -> None:
    """Store what JSON can describe; where nothing can be written, a later process starts slowly."""
    if not is_on():
        return
    text = json.dumps(content, separators=(",", ":"))
    check = sha256(text.encode()).hexdigest()
    try:
        _write(_file(key), json.dumps({"check": check, "content": text}).encode())
    except OSError as error:
        _log.info("a compiled program cannot be stored: %s", error)


def read_record(key: str) -> dict | None:
    """What was stored under a key; None if there is nothing, or it was damaged."""
    if not is_on():
        return None
    try:
        return _checked(_file(key).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        forget_record(key, str(error))
        return None


def _checked(stored: bytes) -> dict:
    outer = json.loads(stored)
    if sha256(outer["content"].encode()).hexdigest() != outer["check"]:
        raise ValueError("its checksum differs")
    return json.loads(outer["content"])


def forget_record(key: str, why: str) -> None:
    """Remove what cannot be used."""
    _log.info("a stored program is compiled again: %s", why)
    _file(key).unlink(missing_ok=True)


def _file(key: str) -> Path:
    return folder() / f"{key}.json"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with atomic_file(path) as file:
        file.write(content)


# -- functions -------------------------------------------------------------------------------------


def store_function(key: str, record: FunctionRecord) -> None:
    write_record(key, as_json(record))


def stored_function(key: str) -> FunctionRecord | None:
    """The function of a key, if it is stored and all its binaries are."""
    content = read_record(key)
    if content is None:
        return None
    try:
        record = from_json(content)
        for name in record.binaries():
            binary_path(name)
    except (ValueError, KeyError, TypeError) as error:
        forget_record(key, str(error))
        return None
    return record


def as_json(record: FunctionRecord) -> dict[str, object]:
    kernels = {
        name: asdict(kernel) if isinstance(kernel, LibraryKernel) else [asdict(k) for k in kernel]
        for name, kernel in record.kernels.items()
    }
    return {
        "text": record.text,
        "kernels": kernels,
        "n_results": record.n_results,
        "checked_inputs": record.checked_inputs,
        "strides": record.strides,
    }


def from_json(content: Mapping) -> FunctionRecord:
    kernels = {name: _kernel(kernel) for name, kernel in content["kernels"].items()}
    checked = tuple(content["checked_inputs"])
    strides = tuple(map(tuple, content["strides"]))
    return FunctionRecord(content["text"], kernels, content["n_results"], checked, strides)


def _kernel(content: Mapping | list) -> Kernel:
    if isinstance(content, Mapping):
        return LibraryKernel(**content)
    return tuple(Launch(**{**one, "mutated": tuple(one["mutated"])}) for one in content)
