"""A plug-in of JAX: the platform "ipu", whose devices are modelled chips.

The metadata of Tremula names it: JAX imports it when it starts its platforms, and calls
`initialize`.
"""

from tremula.base.libraries.parts import is_installed


def initialize() -> None:
    """Register the platform, if the front end is installed: JAX starts without it, too."""
    if is_installed("tremula.frontends.jax"):
        from tremula.frontends.jax.backend import add_platform

        add_platform()
