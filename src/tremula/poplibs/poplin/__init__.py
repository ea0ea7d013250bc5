"""poplin: matrix products and convolutions through one planner, and linear algebra on top."""

from tremula.poplibs.poplin.mat_mul import mat_mul, mat_mul_grouped
from tremula.poplibs.poplin.norms import (
    create_norm_beta,
    create_norm_gamma,
    create_norm_params,
    norm_gradients,
    norm_param_gradients,
    norm_statistics,
    norm_statistics_gradients,
    norm_whiten,
    normalise,
)

__all__ = ["mat_mul", "mat_mul_grouped"]
__all__ += [  # norms
    "create_norm_beta", "create_norm_gamma", "create_norm_params", "norm_gradients",
    "norm_param_gradients", "norm_statistics", "norm_statistics_gradients", "norm_whiten",
    "normalise",
]  # fmt: skip
