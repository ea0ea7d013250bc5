"""A plug-in of JAX: the platform "ipu", whose devices are modelled chips.

The metadata of Tremula names it: JAX imports it when it starts its platforms, and calls
`initialize`.
"""


def initialize() -> None:
    """Register the platform."""
    from tremula.frontends.jax.backend import add_platform

    add_platform()
