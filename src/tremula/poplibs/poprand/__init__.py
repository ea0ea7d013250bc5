"""poprand: random numbers from the generators of the workers, with seeds; dropout."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.poprand import samples as _registered  # noqa: F401 - registers them all
from tremula.poplibs.poprand.distributions import (
    bernoulli,
    log_uniform,
    normal,
    truncated_normal,
    uniform,
)
from tremula.poplibs.poprand.dropout import dropout, shaped_dropout
from tremula.poplibs.poprand.seeding import set_seed

__all__ = [
    "bernoulli",
    "dropout",
    "log_uniform",
    "normal",
    "set_seed",
    "shaped_dropout",
    "truncated_normal",
    "uniform",
]

_explain_arguments_of(globals(), __all__)
