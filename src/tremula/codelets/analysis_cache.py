"""What analysing a codelet finds out, kept between processes beside the compiled kernels.

An entry's name is a hash of the codelet's text and of the code that analyses it, so it is never
stale. It is written whole or not at all; one that cannot be read is made again.
"""

import hashlib
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tremula.base.cache_dir import cache_dir
from tremula.base.types import HALF, QUARTER, Type
from tremula.codelets.cost.counting import CostModel
from tremula.codelets.kernel.kernel_source import KernelText, Variant, draws_random
from tremula.codelets.python.function_source import FunctionSource
from tremula.codelets.python.subset import check_compute, helpers_of
from tremula.codelets.spec import FieldSpec, VertexBase
from tremula.codelets.stored_codelet import fields_as_list, function_as_dict, is_returning_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Facts of a codelet that passed all checks."""

    returns_bool: bool
    n_code_bytes: int
    routines: dict[str, int]  # that it calls, and their bytes
    draws_random: bool
    rounds_to_half: bool
    kernel_text: str  # of the plain kernel


def findings_of(
    name: str, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase
) -> Findings:
    """Check and analyse a codelet, unless that was done before."""
    path = _path_of(name, compute, fields, base)
    found = _read(path)
    if found is None:
        found = _analysed(name, compute, fields, base)
        _keep(path, found)
    return found


def _analysed(
    name: str, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase
) -> Findings:
    check_compute(compute, fields, base)
    n_code_bytes, routines = CostModel(compute, fields, base).code()
    return Findings(
        returns_bool=is_returning_value(compute),
        n_code_bytes=n_code_bytes,
        routines=routines,
        draws_random=draws_random(compute),
        rounds_to_half=_rounds_to_half(compute, fields),
        # What cannot be written as a kernel is refused now, not when it compiles.
        kernel_text=KernelText(name, compute, fields, base, Variant.RUN, False).text(),
    )


def _rounds_to_half(compute: FunctionSource, fields: tuple[FieldSpec, ...]) -> bool:
    """Does it compute with halves? 8-bit floats read as halves."""
    bindings = [b for f in [compute, *helpers_of(compute)] for b in f.bindings.values()]
    used = {f.type for f in fields} | {b for b in bindings if isinstance(b, Type)}
    return bool(used & {HALF, QUARTER})


# -- entries ---------------------------------------------------------------------------------------


def _path_of(
    name: str, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase
) -> Path:
    form = [name, base.value, fields_as_list(fields), function_as_dict(compute)]
    text = _analyser_hash() + json.dumps(form, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    return cache_dir() / "codelets" / f"findings_{key}.json"


@cache
def _analyser_hash() -> str:
    """Changes whenever anything that analyses codelets or writes kernels changes."""
    hasher = hashlib.sha256(sys.version.encode())
    for folder in (Path(__file__).parent, Path(__file__).parent.parent / "base"):
        for path in sorted(folder.rglob("*.py")):
            hasher.update(path.read_bytes())
    return hasher.hexdigest()


def _read(path: Path) -> Findings | None:
    try:
        return Findings(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):  # there is none, or it is damaged
        return None


def _keep(path: Path, found: Findings) -> None:
    """Store an entry; where that is impossible, the kernels' own folder warns about it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(found), file)
        os.replace(temporary, path)
    except OSError:
        return
