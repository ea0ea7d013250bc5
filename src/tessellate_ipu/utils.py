"""`tessellate_ipu.utils`: the devices that programs ask about."""

from numpy.typing import ArrayLike, DTypeLike, NDArray

from tremula.frontends.jax.device import IpuDevice, IpuTargetType, is_ipu_model

__all__ = ["ArrayLike", "DTypeLike", "IpuDevice", "IpuTargetType", "NDArray", "is_ipu_model"]
