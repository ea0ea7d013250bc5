"""Analysis of a codelet: its checks and facts, cached between processes next to compiled kernels.

An entry's name is a hash of the codelet's text and of the code that analyses it, so it is never
stale. It is written atomically, and a damaged one is a cache miss.
"""

import ast
import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tremula.base.code_fingerprint import code_fingerprint
from tremula.base.storage.atomic_file import atomic_file
from tremula.base.storage.cache_dir import cache_dir
from tremula.base.types import HALF, QUARTER, Type
from tremula.codelets.cost.counting import CostModel
from tremula.codelets.kernel.kernel_source import (
    CodeletKernelText,
    Variant,
    draws_random,
    host_kernel_text,
)
from tremula.codelets.python.function_source import FunctionSource
from tremula.codelets.python.nodes import walk
from tremula.codelets.python.subset import check_compute, helpers_of
from tremula.codelets.spec import FieldSpec, VertexBase
from tremula.codelets.stored_codelet import fields_as_list, function_as_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeletAnalysis:
    """Facts of a codelet that passed all checks."""

    returns_bool: bool
    n_instructions: int
    routines: dict[str, int]  # it calls, and their instructions
    draws_random: bool
    rounds_to_half: bool
    kernel_text: str  # of the plain kernel


def analysis_of(
    name: str, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase,
    host_compute: FunctionSource | None = None,
) -> CodeletAnalysis:  # fmt: skip
    """Check and analyse a codelet, unless the cache has it."""
    path = _path_of(name, compute, fields, base, host_compute)
    result = _read(path)
    if result is None:
        result = _analyse(name, compute, fields, base, host_compute)
        _keep(path, result)
    return result


def _analyse(
    name: str, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase,
    host_compute: FunctionSource | None,
) -> CodeletAnalysis:  # fmt: skip
    check_compute(compute, fields, base)
    # All that says what a tile runs is read from `compute`; only a kernel is made of the other.
    model = CostModel(compute, fields, base)
    n_instructions, routines = model.code()
    if host_compute is not None:
        _check_host_compute(host_compute, compute, fields)
    return CodeletAnalysis(
        returns_bool=_returns_value(compute),
        n_instructions=n_instructions,
        routines=routines,
        draws_random=draws_random(compute),
        rounds_to_half=_rounds_to_half(compute, fields),
        # Refuse what cannot be written as a kernel now, not when it compiles.
        kernel_text=(
            CodeletKernelText(name, compute, fields, base, Variant.RUN, False, model)
            if host_compute is None
            else host_kernel_text(name, host_compute, fields)
        ).text(),
    )


def _check_host_compute(
    host_compute: FunctionSource, compute: FunctionSource, fields: tuple[FieldSpec, ...]
) -> None:
    """Refuse a `compute_on_host` that cannot have the results of `compute`."""
    check_compute(host_compute, fields, VertexBase.VERTEX)
    if draws_random(host_compute) or draws_random(compute):
        raise host_compute.error(
            "a codelet that draws random numbers has no compute_on_host",
            None, "leave it out: which worker draws which number is what compute says",
        )  # fmt: skip
    if _returns_value(host_compute) != _returns_value(compute):
        raise host_compute.error(
            "compute and compute_on_host return a value, or neither does", None,
            "return the same from both",
        )  # fmt: skip


def _returns_value(compute: FunctionSource) -> bool:
    """Whether compute returns something."""
    returns = (n for n in walk(compute.tree()) if isinstance(n, ast.Return))
    return any(node.value is not None for node in returns)


def _rounds_to_half(compute: FunctionSource, fields: tuple[FieldSpec, ...]) -> bool:
    """Whether it computes with halves, or writes 8-bit floats; these read as floats, exactly."""
    bindings = [b for f in [compute, *helpers_of(compute)] for b in f.bindings.values()]
    used = {f.type for f in fields} | {b for b in bindings if isinstance(b, Type)}
    return HALF in used or any(f.type is QUARTER and f.is_written for f in fields)


# -- entries ---------------------------------------------------------------------------------------


def _path_of(
    name: str, compute: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase,
    host_compute: FunctionSource | None,
) -> Path:  # fmt: skip
    form = [name, base.value, fields_as_list(fields), function_as_dict(compute)]
    form += [] if host_compute is None else [function_as_dict(host_compute)]
    # Anything that analyses codelets or writes kernels may change what is found.
    text = code_fingerprint("codelets", "base") + json.dumps(form, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    return cache_dir() / "codelets" / f"analysis_{key}.json"


def _read(path: Path) -> CodeletAnalysis | None:
    try:
        return CodeletAnalysis(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):  # missing or damaged
        return None


def _keep(path: Path, result: CodeletAnalysis) -> None:
    """Store an entry. If that fails, kernel/build.py warns about the same folder."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path, "w") as file:
            json.dump(asdict(result), file)
