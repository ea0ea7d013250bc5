"""The configuration of IPUs, under its module's original name."""

from tremula.frontends.optimum.ipu_config import IPU_CONFIG_NAME, IPUConfig

__all__ = ["IPU_CONFIG_NAME", "IPUConfig"]
