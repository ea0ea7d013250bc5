"""popxl.ops.var_updates: operations that change variables."""

from tremula.frontends.popxl.ops.var_updates import (
    accumulate_,
    accumulate_mean_,
    accumulate_moving_average_,
    accumulate_moving_average_square_,
    accumulate_square_,
    accumulator_scale_,
    accumulator_zero_,
    adam_updater,
    adam_var_update,
    adamax_updater,
    copy_var_update_,
    lamb_updater,
    sparse_accumulate_,
)
