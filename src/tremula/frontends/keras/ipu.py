"""The module that scripts call `ipu`: its parts by the names they have in TensorFlow for IPUs."""

from types import SimpleNamespace

from tremula.frontends.keras import config, enums
from tremula.frontends.keras import strategy as ipu_strategy
from tremula.frontends.keras.config import (
    IPUConfig,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from tremula.frontends.keras.errors import KerasError
from tremula.frontends.keras.strategy import IPUStrategy

utils = SimpleNamespace(
    configure_ipu_system=configure_ipu_system,
    reset_ipu_configuration=reset_ipu_configuration,
    DeviceConnectionType=enums.DeviceConnectionType,
    SelectionOrder=enums.SelectionOrder,
)

__all__ = [
    "IPUConfig",
    "IPUStrategy",
    "KerasError",
    "config",
    "configure_ipu_system",
    "enums",
    "get_ipu_config",
    "ipu_strategy",
    "reset_ipu_configuration",
    "utils",
]
