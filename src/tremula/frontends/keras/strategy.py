"""`IPUStrategy`: models built in its scope run as compiled steps."""

from collections.abc import Iterator
from contextlib import contextmanager

from tremula.frontends.keras.config import n_chips_in_force
from tremula.frontends.keras.options import ModelOptions
from tremula.frontends.keras.trainer import scope_of


class IPUStrategy:
    """Where Keras models run: on the chips that `configure_ipu_system` chose."""

    def __init__(self, ipu_device: str = "/device:IPU:0", cpu_device: str = "/device:CPU:0"):
        self.ipu_device, self.cpu_device = ipu_device, cpu_device

    @property
    def num_ipus(self) -> int:
        """Chips of the machine."""
        return n_chips_in_force()

    @property
    def num_replicas_in_sync(self) -> int:
        """Copies of a model that train together: one on each chip."""
        return self.num_ipus

    @contextmanager
    def scope(self) -> Iterator["IPUStrategy"]:
        """Models that are built inside, or used for the first time, run compiled."""
        with scope_of(lambda: ModelOptions(n_replicas=self.num_replicas_in_sync)):
            yield self


IPUStrategyV1 = IPUStrategy
