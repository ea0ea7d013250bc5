"""poplin: matrix products and convolutions through one planner, and linear algebra on top."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.poplin.group_quantised import group_decompressed
from tremula.poplibs.poplin.meshgrid import linspace, meshgrid_2d
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
from tremula.poplibs.poplin.product.bias import (
    add_bias,
    convolution_bias_update,
    convolution_weight_update,
    create_biases,
    weights_transpose_chans_flip_xy,
)
from tremula.poplibs.poplin.product.conv_params import ConvParams, input_gradient_params
from tremula.poplibs.poplin.product.convolution import (
    calculate_weight_deltas,
    convolution,
    convolution_plan,
    create_input,
    create_weights,
)
from tremula.poplibs.poplin.product.mat_mul import (
    create_mat_mul_grouped_input_lhs,
    create_mat_mul_grouped_input_rhs,
    create_mat_mul_grouped_output,
    create_mat_mul_input_lhs,
    create_mat_mul_input_rhs,
    create_mat_mul_output,
    mat_mul,
    mat_mul_acc,
    mat_mul_grouped,
    mat_mul_grouped_acc,
    mat_mul_grouped_with_output,
    mat_mul_plan,
    mat_mul_with_output,
)
from tremula.poplibs.poplin.product.plan import ProductPlan, plan_report
from tremula.poplibs.poplin.solvers.cholesky import (
    cholesky,
    cholesky_in_place,
    create_cholesky_input,
)
from tremula.poplibs.poplin.solvers.jacobi import orthogonal_columns
from tremula.poplibs.poplin.solvers.lu import (
    lu_factorization,
    lu_packed,
    permutation_of_pivots,
)
from tremula.poplibs.poplin.solvers.qr import qr_factorization, qr_packed
from tremula.poplibs.poplin.solvers.triangular_solve import (
    create_triangular_solve_input_lhs,
    create_triangular_solve_input_rhs,
    triangular_mask,
    triangular_solve,
)

__all__ = [
    # matrix products
    "create_mat_mul_grouped_input_lhs", "create_mat_mul_grouped_input_rhs",
    "create_mat_mul_grouped_output", "create_mat_mul_input_lhs", "create_mat_mul_input_rhs",
    "create_mat_mul_output", "mat_mul", "mat_mul_acc", "mat_mul_grouped", "mat_mul_grouped_acc",
    "mat_mul_grouped_with_output", "mat_mul_plan", "mat_mul_with_output",
    # convolutions
    "ConvParams", "add_bias", "calculate_weight_deltas", "convolution",
    "convolution_bias_update", "convolution_plan", "convolution_weight_update", "create_biases",
    "create_input", "create_weights", "input_gradient_params", "weights_transpose_chans_flip_xy",
    # plans, weights of 4 bits
    "ProductPlan", "group_decompressed", "plan_report",
]  # fmt: skip
__all__ += [  # norms
    "create_norm_beta", "create_norm_gamma", "create_norm_params", "norm_gradients",
    "norm_param_gradients", "norm_statistics", "norm_statistics_gradients", "norm_whiten",
    "normalise",
]  # fmt: skip
__all__ += [  # solvers
    "cholesky", "cholesky_in_place", "create_cholesky_input", "create_triangular_solve_input_lhs",
    "create_triangular_solve_input_rhs", "linspace", "lu_factorization", "lu_packed",
    "meshgrid_2d", "orthogonal_columns", "permutation_of_pivots", "qr_factorization",
    "qr_packed", "triangular_mask", "triangular_solve",
]  # fmt: skip

_explain_arguments_of(globals(), __all__)
