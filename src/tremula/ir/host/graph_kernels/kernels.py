"""Graph kernels as one PyTorch operation, run by Triton or Gluon, and without Triton by ATen.

How a kernel is launched is chosen on its first run: candidates are timed, and the choice is saved.
"""

import importlib.util
import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from tremula.base.libraries.patching import replaced_for_all
from tremula.base.storage.atomic_file import atomic_file
from tremula.base.storage.cache_dir import cache_dir
from tremula.ir.cuda_capture import capturing, milliseconds_of_replay
from tremula.ir.host.graph_kernels.compile_ahead import Answer, KernelRequest, compile_ahead
from tremula.ir.host.graph_kernels.printers.gluon_features import (
    MAX_SHARED_BYTES,
    N_ROWS,
    N_WARPS,
)

_WINDOW = 16  # segments that one product sums into
_N_TIMED = 10  # launches of each candidate
_N_REPLAYS = 5  # of them together; the shortest counts, since other processes may use the GPU
_HOPPER = 9  # compute capability
# Forms of a kernel: tiles of rows in Triton, in Gluon, feature-major in Gluon; or by segments.
TILES, GLUON, FEATURE_MAJOR_TILES, SEGMENTS = "tiles", "gluon", "feature-major", "segments"
ATEN = "aten"  # where no form compiles
_SHARED_TILE = re.compile(r"allocate_shared_memory\(gl\.(\w+), \[(\w+), (\w+)\]")
_LINE = 200  # characters of a compiler's message that are logged
_log = logging.getLogger("tremula.gpu")


@dataclass(frozen=True)
class KernelLaunch:
    """A form of a kernel, its rows per tile, warps per program, programs per multiprocessor."""

    block: int
    n_warps: int
    hoists: bool  # matrices are read once per program, not once per tile
    per_processor: int = 1
    max_registers: int = 0  # per thread, so that several programs fit; 0: no limit
    form: str = TILES


# The first is taken where nothing can be timed.
_CANDIDATES = (
    KernelLaunch(32, 4, False, 8),
    KernelLaunch(16, 4, False, 8),
    KernelLaunch(64, 4, False, 4),
)
_WITH_PRODUCTS = (
    KernelLaunch(64, 8, False, 2),
    KernelLaunch(32, 4, False, 4),
    KernelLaunch(32, 8, True, 2, 128),
    KernelLaunch(64, 8, True, 1),
    KernelLaunch(128, 8, False, 1),
)
# Several matrices, or a sum of outer products, leave no room to read them again for each tile.
_WITH_CHAINS = (
    KernelLaunch(32, 8, True, 1),
    KernelLaunch(32, 8, True, 2, 128),
    KernelLaunch(32, 4, True, 2),
    KernelLaunch(16, 4, True, 2),
)
# With few rows each program has one tile: small ones, so that many multiprocessors have work.
_FEW_ROWS = 1 << 14
_N_OF_FEW_ROWS = 2  # candidates of each kind that are compiled then: most of the time are launches
_WITH_FEW_ROWS = (
    KernelLaunch(16, 4, False, 4),
    KernelLaunch(16, 8, False, 4),
    KernelLaunch(32, 8, False, 2),
)
_IN_GLUON = (  # a warp has 16 rows, and four of them work together
    KernelLaunch(64, 4, True, 2, form=GLUON),
    KernelLaunch(64, 8, True, 1, form=GLUON),
    KernelLaunch(128, 8, True, 1, form=GLUON),
    KernelLaunch(128, 8, True, 2, 128, form=GLUON),
)
_FEATURE_MAJOR = (KernelLaunch(N_ROWS, N_WARPS, True, 1, form=FEATURE_MAJOR_TILES),)
# A block is the rows of a segment that are read together; a warp has four of them or two.
_BY_SEGMENTS = (
    KernelLaunch(4, 1, False, form=SEGMENTS),
    KernelLaunch(2, 1, False, form=SEGMENTS),
    KernelLaunch(8, 2, False, form=SEGMENTS),
)
_LAUNCH_FIELDS = [
    part.name for part in fields(KernelLaunch)
]  # a file with other fields is not read
_LONG = 64  # rows of a segment that one program sums; others sum the rest


@dataclass
class RowKernel:
    """A kernel: its text, its results, and its operations as a graph of ATen operations."""

    text: str
    n_rows: int
    results: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    is_summed: tuple[bool, ...]
    sums_over_rows: bool
    n_matrices: int  # that rows are multiplied by
    has_outer_sums: bool  # by tensor cores
    graph: fx.GraphModule
    others: dict[str, str] = field(default_factory=dict)  # form -> text, of the other forms it has
    input_types: tuple[torch.dtype, ...] = ()
    launch: KernelLaunch | None = field(default=None)
    # What other processes say about candidates that they compile.
    ahead: dict[KernelLaunch, "Future[Answer]"] = field(default_factory=dict)

    @property
    def texts(self) -> str:
        """The texts of all forms: a choice between them depends on all."""
        return self.text + "".join(self.others.values())

    def argument_types(self) -> tuple[str, ...]:
        """Names of the types of inputs and results; what is added to is float32."""
        summed = zip(self.results, self.is_summed, strict=True)
        results = [torch.float32 if is_summed else dtype for (_, dtype), is_summed in summed]
        return tuple(str(dtype).removeprefix("torch.") for dtype in (*self.input_types, *results))

    def text_for(self, launch: KernelLaunch) -> str:
        return self.text if launch.form == TILES else self.others[launch.form]

    @property
    def digest(self) -> str:
        # The graph of ATen operations makes tensors, on a device that the texts do not name.
        devices = {str(node.kwargs.get("device")) for node in self.graph.graph.nodes}
        content = (self.texts, self.n_rows, self.results, self.is_summed, sorted(devices))
        return sha256(repr(content).encode()).hexdigest()[:32]


_kernels: dict[str, RowKernel] = {}


def register(kernel: RowKernel) -> str:
    """Register a kernel for `tremula::row_kernel`; equal kernels are registered once."""
    return _kernels.setdefault(kernel.digest, kernel).digest


def compile_candidates(digests: Sequence[str], device: torch.device) -> None:
    """Let other processes compile the kernels of a step that have not been chosen yet."""
    if device.type != "cuda" or not has_triton():
        return
    major, minor = torch.cuda.get_device_capability(device)
    has_units, pairs = has_matrix_units(device), []
    for digest in dict.fromkeys(digests):
        kernel = _kernels[digest]
        if kernel.launch is None and not kernel.ahead and _known(kernel, device) is None:
            pairs += [(kernel, launch) for launch in candidates_of(kernel, has_units)]
    pairs.sort(key=lambda pair: _work_to_compile(*pair), reverse=True)  # the last ones are short
    requests = [request_for(kernel, launch, 10 * major + minor) for kernel, launch in pairs]
    for (kernel, launch), future in zip(pairs, compile_ahead(requests), strict=True):
        kernel.ahead[launch] = future


def _work_to_compile(kernel: RowKernel, launch: KernelLaunch) -> int:
    """In characters of Triton: of Gluon's texts more is compiled as it is written."""
    n_characters = len(kernel.text_for(launch))
    return n_characters if launch.form in (TILES, SEGMENTS) else 2 * n_characters


def request_for(kernel: RowKernel, launch: KernelLaunch, capability: int) -> KernelRequest:
    """What another process needs to compile a candidate for a kind of GPU."""
    path = _file_of(kernel.text_for(launch))
    return KernelRequest(str(path), kernel.argument_types(), _choices(launch), capability)


# -- the operation ---------------------------------------------------------------------------------

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("row_kernel(str digest, Tensor[] inputs) -> Tensor[]")


def _by_aten(digest: str, inputs: list[Tensor]) -> list[Tensor]:
    return list(_kernels[digest].graph(*inputs))


def _on_gpu(digest: str, inputs: list[Tensor]) -> list[Tensor]:
    if not has_triton():
        return _by_aten(digest, inputs)
    kernel = _kernels[digest]
    return run(kernel, [tensor.contiguous() for tensor in inputs])


def _fake(digest: str, inputs: list[Tensor]) -> list[Tensor]:
    results = _kernels[digest].results
    return [inputs[0].new_empty(shape, dtype=dtype) for shape, dtype in results]


_library.impl("row_kernel", _by_aten, "CPU")
_library.impl("row_kernel", _on_gpu, "CUDA")
torch.library.register_fake("tremula::row_kernel", _fake, lib=_library)


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


# -- launching -------------------------------------------------------------------------------------


def run(kernel: RowKernel, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Run a kernel; its first run chooses how it is launched."""
    if kernel.launch is None:
        kernel.launch = _chosen(kernel, inputs)
    if kernel.launch.form == ATEN:
        return list(kernel.graph(*inputs))
    results = _started(kernel, kernel.launch, inputs)
    typed = zip(results, kernel.results, strict=True)
    return [t if t.dtype == dtype else t.to(dtype) for t, (_, dtype) in typed]


def _new_results(kernel: RowKernel, device: torch.device) -> list[Tensor]:
    """Memory for results: those that are added to are float32, and cleared by one launch.

    Each has separate memory, since results of an operation may not share any.
    """
    made = [
        torch.empty(shape, dtype=torch.float32 if is_summed else dtype, device=device)
        for (shape, dtype), is_summed in zip(kernel.results, kernel.is_summed, strict=True)
    ]
    to_clear = [t for t, is_summed in zip(made, kernel.is_summed, strict=True) if is_summed]
    if len(to_clear) == 1:
        to_clear[0].zero_()  # 5 MB take 2.4 µs on an H200 in this way, 6.1 in the other
    elif to_clear:
        torch._foreach_zero_(to_clear)  # pyright: ignore[reportPrivateImportUsage]
    return made


def _started(kernel: RowKernel, launch: KernelLaunch, inputs: Sequence[Tensor]) -> list[Tensor]:
    results = _new_results(kernel, inputs[0].device)
    _start(kernel, launch, inputs, results)
    return results


def _start(
    kernel: RowKernel, launch: KernelLaunch, inputs: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    n_programs = -(-kernel.n_rows // launch.block)
    if launch.form == SEGMENTS:
        n_programs = results[0].shape[0] - (-kernel.n_rows // _LONG)
    elif kernel.sums_over_rows or kernel.n_matrices:
        n_processors = _n_processors(inputs[0].device.index or 0)
        n_programs = min(n_programs, n_processors * launch.per_processor)
    function = compiled_text(kernel.text_for(launch))
    function[n_programs,](*inputs, *results, **_choices(launch))


def _choices(launch: KernelLaunch) -> dict[str, int]:
    if launch.form == SEGMENTS:
        return {"BLOCK": launch.block, "LONG": _LONG, "num_warps": launch.n_warps}
    limited = {"maxnreg": launch.max_registers} if launch.max_registers else {}
    sizes = {"BLOCK": launch.block, "WINDOW": _WINDOW, "num_warps": launch.n_warps, **limited}
    return sizes if launch.form != TILES else {**sizes, "HOIST": launch.hoists, "num_stages": 1}


def _compiles(kernel: RowKernel, launch: KernelLaunch, arguments: Sequence[Tensor]) -> bool:
    """Compile a candidate; False, and a line in the log, if it does not compile or does not fit."""
    function = compiled_text(kernel.text_for(launch))
    try:
        with quiet_compiler():
            compiled = function.warmup(*arguments, grid=(1,), **_choices(launch))
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises, other forms are tried
        _log_failure(launch, str(error))
        return False
    n_bytes = getattr(getattr(compiled, "metadata", None), "shared", 0)
    return _fits_shared_memory(launch, n_bytes, arguments[0].device)


def _fits_shared_memory(launch: KernelLaunch, n_bytes: int, device: torch.device) -> bool:
    most = _shared_memory(device.index or 0)
    if n_bytes > most:
        _log_failure(launch, f"{n_bytes} bytes of shared memory, of {most}")
    return n_bytes <= most


def _log_failure(launch: KernelLaunch, reason: str) -> None:
    line = next((line for line in reason.splitlines() if line.strip()), "no reason")[:_LINE]
    _log.info("a kernel does not compile as %s, another form is used: %s", launch.form, line)


@contextmanager
def quiet_compiler() -> Iterator[None]:
    """Without the assembly that Triton prints when the assembler rejects it."""
    from triton.backends.nvidia import (  # pyright: ignore[reportMissingImports]
        compiler,
    )

    with replaced_for_all(compiler, "print", _print_nothing):
        yield


def _print_nothing(*_args: object, **_kwargs: object) -> None:
    """In place of print: the error that follows has what matters."""


@cache
def _shared_memory(device: int) -> int:
    """Bytes that a program may have."""
    properties = torch.cuda.get_device_properties(device)
    return getattr(properties, "shared_memory_per_block_optin", 1 << 30)


@cache
def _n_processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def compiled_text(text: str) -> Any:  # noqa: ANN401 - Triton's own type, which loads it
    """The function in a text, loaded from a file, since Triton reads the source of functions."""
    path = _file_of(text)
    name = path.stem  # what profilers show
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} is a module"
    assert spec.loader is not None, f"{path} is a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _file_of(text: str) -> Path:
    """The file of a text, in which the function is named like the file."""
    path = _stored(text, ".py")
    if not path.exists():
        _write(path, text.replace("def kernel(", f"def {path.stem}("))
    return path


def _write(path: Path, text: str) -> None:
    """Write a file in one step: other processes may read it."""
    with atomic_file(path, "w") as file:
        file.write(text)


def _stored(text: str, suffix: str) -> Path:
    digest = sha256(f"{_LAUNCH_FIELDS}{text}".encode()).hexdigest()[:32]
    return cache_dir() / "rows" / f"rows_{digest}{suffix}"


# -- choosing --------------------------------------------------------------------------------------


def _chosen(kernel: RowKernel, inputs: Sequence[Tensor]) -> KernelLaunch:
    """The fastest candidate on this GPU: known from an earlier run, or timed now."""
    if torch.cuda.is_current_stream_capturing():
        return candidates_of(kernel, has_matrix_units(inputs[0].device))[0]
    device = inputs[0].device
    known = _known(kernel, device)
    if known is None:
        known = _timed(kernel, inputs)
        path = _stored(kernel.texts, ".json")
        every = _known_launches(path) | {torch.cuda.get_device_name(device): known}
        _write(path, json.dumps(every))
    return KernelLaunch(*known)


def _known(kernel: RowKernel, device: torch.device) -> list | None:
    """The choice of an earlier run on such a GPU."""
    path = _stored(kernel.texts, ".json")
    return _known_launches(path).get(torch.cuda.get_device_name(device))


def _known_launches(path: Path) -> dict[str, list]:
    """The choices of earlier runs, by the name of a GPU; none if the file is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _timed(kernel: RowKernel, inputs: Sequence[Tensor]) -> list:
    from triton.runtime.errors import (  # pyright: ignore[reportMissingImports]
        OutOfResources,
    )

    device = inputs[0].device
    every = candidates_of(kernel, has_matrix_units(device))
    candidates = [launch for launch in every if _can_compile(kernel, launch, device)]
    arguments = [*inputs, *_new_results(kernel, device)]
    for launch in candidates:
        compiled_text(kernel.text_for(launch))
    with ThreadPoolExecutor() as pool:  # the compiler works outside Python
        compiled = list(pool.map(lambda launch: _compiles(kernel, launch, arguments), candidates))
    candidates = [launch for launch, is_fine in zip(candidates, compiled, strict=True) if is_fine]
    times: dict[KernelLaunch, float] = {}
    for launch in candidates:
        try:
            times[launch] = _time_of(lambda: _started(kernel, launch, inputs))  # noqa: B023
        except OutOfResources as error:
            _log_failure(launch, str(error))
    best = min(times, key=times.__getitem__, default=KernelLaunch(0, 0, False, form=ATEN))
    return list(astuple(best))


def _can_compile(kernel: RowKernel, launch: KernelLaunch, device: torch.device) -> bool:
    """What the process says that compiled a candidate, if one did."""
    if launch not in kernel.ahead:
        return True
    answer = kernel.ahead[launch].result()
    if "error" in answer:
        _log_failure(launch, str(answer["error"]))
        return False
    return _fits_shared_memory(launch, int(str(answer.get("shared", 0))), device)


def candidates_of(kernel: RowKernel, has_units: bool) -> tuple[KernelLaunch, ...]:
    """Ways to launch a kernel, on a GPU with or without the matrix units of Hopper."""
    n_each = _N_OF_FEW_ROWS if kernel.n_rows <= _FEW_ROWS else None
    if not kernel.n_matrices and not kernel.has_outer_sums:
        segments = _BY_SEGMENTS if SEGMENTS in kernel.others else ()
        return (*_CANDIDATES[:n_each], *segments)
    is_full = kernel.n_matrices > 1 or kernel.has_outer_sums
    plain = (_WITH_CHAINS if is_full else _WITH_PRODUCTS)[:n_each]
    if n_each is not None:
        plain = (*_WITH_FEW_ROWS, *plain)
    if not has_units:
        return plain
    return (
        *plain,
        *(_gluon_candidates(kernel, n_each) if GLUON in kernel.others else ()),
        *(_FEATURE_MAJOR if FEATURE_MAJOR_TILES in kernel.others else ()),
    )


def _gluon_candidates(kernel: RowKernel, n_each: int | None) -> tuple[KernelLaunch, ...]:
    """Those that fit; registers are limited only where two programs fit for it."""
    text = kernel.others[GLUON]
    candidates = []
    for launch in _IN_GLUON[:n_each]:
        n_programs = launch.per_processor if launch.max_registers else 1
        if n_programs * shared_bytes(text, launch.block) <= MAX_SHARED_BYTES:
            candidates.append(launch)
    return tuple(candidates)


def shared_bytes(text: str, block: int) -> int:
    """The shared memory that a text in Gluon asks for; conversions of layouts take some more."""
    return sum(
        math.prod(block if side == "BLOCK" else int(side) for side in sides)
        * getattr(torch, dtype).itemsize
        for dtype, *sides in _SHARED_TILE.findall(text)
    )


def has_matrix_units(device: torch.device) -> bool:
    """Whether a device has the matrix units of Hopper, and Gluon is installed."""
    if device.type != "cuda" or not _has_gluon():
        return False
    return torch.cuda.get_device_capability(device)[0] == _HOPPER


@cache
def _has_gluon() -> bool:
    return has_triton() and importlib.util.find_spec("triton.experimental.gluon") is not None


def _time_of(start: Callable[[], object]) -> float:
    """The time of several launches, from a CUDA graph, so that there are no gaps between them."""
    start()
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        for _ in range(_N_TIMED):
            start()
    graph.replay()
    return min(milliseconds_of_replay(graph) for _ in range(_N_REPLAYS))
