"""Environment variables of processes that run tests, set before libraries read them."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def set_variables(is_worker: bool) -> None:
    """Set what is not set yet."""
    if is_worker:
        # There are at least as many workers as cores. With several threads each, PyTorch spends
        # half of the processor time spinning at barriers.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # Processes that compile for Inductor each import PyTorch first.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # What JAX compiles to compare with stays between runs: half the time of such a comparison.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "build" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
