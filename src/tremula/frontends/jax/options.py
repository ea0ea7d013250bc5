"""Options of the IPU's JAX as options of JAX: `jax.config.update("jax_ipu_device_count", 4)`.

The environment sets them, too, under their names in capitals. They are read when JAX starts its
platforms; the number of tiles whenever a program is compiled.
"""

from functools import cache
from typing import Any

from jax._src import config


@cache
def _states() -> dict[str, Any]:
    """JAX's states of the options, made once."""
    return {
        "count": config.int_state(
            "jax_ipu_device_count", 1, "How many modelled IPUs the platform has."
        ),
        "tiles": config.int_state(
            "jax_ipu_model_num_tiles", 0, "Tiles of each modelled IPU; 0: all of the chip's."
        ),
        "model": config.bool_state(
            "jax_ipu_use_model", True, "IPUs are modelled; there are no others."
        ),
    }


def add_options() -> None:
    """Let JAX know the options."""
    _states()


def n_devices_of_option() -> int:
    return max(1, _states()["count"].value)


def n_tiles_of_option() -> int:
    return _states()["tiles"].value
