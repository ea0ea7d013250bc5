"""A kernel that Triton compiled is stored, and launched by a later process without Triton."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tremula.ir.host.compiled import store, tensor_kernels
from tremula.ir.host.compiled.functions import CannotStoreError
from tremula.ir.host.compiled.tensor_kernels import TensorKernel, launch_of

KERNEL = TensorKernel(
    """import triton
import triton.language as tl


@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) + 1)
""",
    (("BLOCK", 32),),
    1,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    tensor_kernels._form.cache_clear()
    return tmp_path


def made(**metadata: object) -> SimpleNamespace:
    """What Triton returns of a launch."""
    known = {"name": "kernel", "num_warps": 4, "shared": 16, "num_ctas": 1}
    return SimpleNamespace(
        asm={"cubin": b"code"}, metadata=SimpleNamespace(**{**known, **metadata})
    )


def test_a_launch_has_what_the_driver_needs():
    """A pointer for each tensor and each kind of scratch memory; the cubin is in the store."""
    launch = launch_of(made(global_scratch_size=0, profile_scratch_size=0), 3)
    assert (launch.types, launch.n_scratch) == ("OOO", 2)
    assert (launch.symbol, launch.n_warps, launch.n_shared_bytes) == ("kernel", 4, 16)
    assert store.binary_path(launch.binary).read_bytes() == b"code"


@pytest.mark.parametrize("metadata", [{"num_ctas": 2}, {"global_scratch_size": 64}])
def test_a_kernel_that_needs_more_is_not_stored(metadata: dict):
    """Clusters and scratch memory are Triton's to launch."""
    with pytest.raises(CannotStoreError):
        launch_of(made(**metadata), 1)


def test_types_and_alignments_are_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch):
    """Triton compiles once for each form of arguments; each is stored once."""
    compiled, stored = [], []

    def function(*args: torch.Tensor, **_options: object) -> SimpleNamespace:
        compiled.append([arg.dtype for arg in args])
        return made()

    monkeypatch.setattr(tensor_kernels, "compiled_text", lambda _text: {(2,): function})
    monkeypatch.setattr(tensor_kernels, "_store", lambda key, *_: stored.append(key))
    x, halves = torch.zeros(64), torch.zeros(64, dtype=torch.float16)
    for args in ((x, x), (x, x), (x, halves), (x[1:], x)):
        KERNEL.run(2, args)
    assert len(compiled) == 4
    assert len(set(stored)) == len(stored) == 3


def test_damaged_code_is_compiled_again(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """A cubin that is not what was stored is not loaded."""
    runs = []
    monkeypatch.setattr(tensor_kernels, "compiled_text", lambda _text: {(1,): _made_by(runs)})
    x = torch.zeros(32)
    KERNEL.run(1, (x, x))
    for cubin in (cache / "compiled").glob("*.cubin"):
        cubin.write_bytes(b"other")
    tensor_kernels._form.cache_clear()
    KERNEL.run(1, (x, x))
    assert len(runs) == 2


def _made_by(runs: list) -> object:
    def function(*args: torch.Tensor, **_options: object) -> SimpleNamespace:
        runs.append(args)
        return made()

    return function


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_next_process_needs_no_triton(monkeypatch: pytest.MonkeyPatch):
    """What the first launch stored computes the same, launched without the compiler."""
    x = torch.arange(64.0, device="cuda")
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    KERNEL.run(2, (x, first))
    tensor_kernels._form.cache_clear()
    monkeypatch.delattr(tensor_kernels, "compiled_text")
    KERNEL.run(2, (x, second))
    assert torch.equal(first, x + 1)
    assert torch.equal(second, first)
