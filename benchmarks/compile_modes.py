"""The modes of torch.compile that figures compare with; the best one counts.

All by default. `max-autotune` compiles for minutes: TREMULA_COMPILE_MODES=default,reduce-overhead
leaves it out.
"""

import os

_ALL = ("default", "reduce-overhead", "max-autotune")


def compile_modes() -> tuple[str, ...]:
    """The modes of the environment, else all; none if the variable is empty."""
    chosen = os.environ.get("TREMULA_COMPILE_MODES")
    if chosen is None:
        return _ALL
    return tuple(mode for mode in chosen.split(",") if mode)
