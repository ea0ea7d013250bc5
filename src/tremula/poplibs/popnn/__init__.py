"""popnn: non-linearities, softmax, normalisation, pooling, losses, recurrent nets, CTC."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.popnn.ctc import inference as ctc_inference
from tremula.poplibs.popnn.ctc import loss as ctc
from tremula.poplibs.popnn.loss import MASKED_LABEL_CODE, LossType, calc_accuracy, calc_loss, top_k
from tremula.poplibs.popnn.non_linearity import (
    NonLinearityType,
    gelu,
    gelu_erf,
    gelu_erf_in_place,
    gelu_in_place,
    hard_sigmoid,
    hard_sigmoid_in_place,
    non_linearity,
    non_linearity_in_place,
    non_linearity_input_gradient,
    relu,
    relu_in_place,
    sigmoid,
    sigmoid_in_place,
    swish,
    swish_in_place,
    tanh,
    tanh_in_place,
)
from tremula.poplibs.popnn.norms import (
    batch_norm_gradients,
    batch_norm_param_gradients,
    batch_norm_statistics,
    batch_norm_whiten,
    batch_normalise,
    group_norm_gradients,
    group_norm_param_gradients,
    group_norm_statistics,
    group_norm_whiten,
    group_normalise,
    instance_norm_gradients,
    instance_norm_statistics,
    instance_norm_whiten,
    instance_normalise,
    layer_norm_gradients,
    layer_norm_statistics,
    layer_norm_whiten,
    layer_normalise,
    norm_param_update,
)
from tremula.poplibs.popnn.pooling.geometry import PoolingType, PoolParams
from tremula.poplibs.popnn.pooling.pool import (
    pool,
    pool_gradient_by_places,
    pool_input_gradient,
    pool_places,
)
from tremula.poplibs.popnn.recurrent import gru, gru_reset_after, lstm, rnn
from tremula.poplibs.popnn.softmax import (
    log_softmax,
    log_softmax_in_place,
    log_softmax_input_gradient,
    softmax,
    softmax_in_place,
    softmax_input_gradient,
    softmax_scaling,
)
from tremula.poplibs.popops.sorting.arg_max import (
    arg_max,
    arg_min,
    max_and_arg_max,
    min_and_arg_min,
)

__all__ = [
    # non-linearities
    "NonLinearityType", "non_linearity", "non_linearity_in_place", "non_linearity_input_gradient",
    "sigmoid", "hard_sigmoid", "relu", "tanh", "gelu", "gelu_erf", "swish", "sigmoid_in_place",
    "hard_sigmoid_in_place", "relu_in_place", "tanh_in_place", "gelu_in_place",
    "gelu_erf_in_place", "swish_in_place",
    # softmax
    "softmax", "softmax_in_place", "softmax_scaling", "softmax_input_gradient", "log_softmax",
    "log_softmax_in_place", "log_softmax_input_gradient",
    # norms
    "batch_norm_gradients", "batch_norm_param_gradients", "batch_norm_statistics",
    "batch_norm_whiten", "batch_normalise", "group_norm_gradients", "group_norm_param_gradients",
    "group_norm_statistics", "group_norm_whiten", "group_normalise", "instance_norm_gradients",
    "instance_norm_statistics", "instance_norm_whiten", "instance_normalise",
    "layer_norm_gradients", "layer_norm_statistics", "layer_norm_whiten", "layer_normalise",
    "norm_param_update",
    # losses and accuracy
    "MASKED_LABEL_CODE", "LossType", "calc_loss", "calc_accuracy", "top_k", "arg_max", "arg_min",
    "max_and_arg_max", "min_and_arg_min",
    # pooling
    "PoolParams", "PoolingType", "pool", "pool_gradient_by_places",
    "pool_input_gradient", "pool_places",
]  # fmt: skip
__all__ += [  # recurrent nets and CTC, each a namespace as in PopLibs
    "ctc", "ctc_inference", "gru", "gru_reset_after", "lstm",
    "rnn",
]  # fmt: skip

_explain_arguments_of(globals(), __all__)
