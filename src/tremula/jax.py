"""`import tremula.jax`: functions of JAX as programs for this computer and for tiles."""

from tremula.frontends.jax.backend import add_platform
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.function import JitFunction, jit, pmap
from tremula.frontends.jax.jax_namespace import ipu_backend

__all__ = ["JaxError", "JitFunction", "ipu_backend", "jit", "pmap"]

add_platform()
