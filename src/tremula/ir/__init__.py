"""A PyTorch model's whole step as one graph of ATen operations, and both its executions."""

import os
import sys


def _compute_on_one_thread() -> None:
    """PyTorch's OpenMP waits for ever for the threads that a forked process does not have."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_compute_on_one_thread)
