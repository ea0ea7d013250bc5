"""popsparse.experimental: products and softmax of matrices in blocks of any size, by masks."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.popsparse.experimental.block_params import BSMatMulParams, SubBlockMask
from tremula.poplibs.popsparse.experimental.block_product import (
    bs_mat_mul,
    create_bs_mat_mul_input_lhs,
    create_bs_mat_mul_input_rhs,
)
from tremula.poplibs.popsparse.experimental.block_softmax import (
    bs_softmax,
    bs_softmax_grad,
    bs_softmax_in_place,
)

__all__ = [
    "BSMatMulParams", "SubBlockMask", "bs_mat_mul", "bs_softmax", "bs_softmax_grad",
    "bs_softmax_in_place", "create_bs_mat_mul_input_lhs", "create_bs_mat_mul_input_rhs",
]  # fmt: skip

_explain_arguments_of(globals(), __all__)
