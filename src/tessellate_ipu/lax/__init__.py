"""`tessellate_ipu.lax`: primitives for `tile_map`, those of JAX and some more."""

from enum import IntEnum

from jax.lax import (  # noqa: F401 - re-exported under the names programs use
    abs_p,
    acos_p,
    add_p,
    and_p,
    argmax_p,
    argmin_p,
    asin_p,
    atan2_p,
    atan_p,
    bitcast_convert_type_p,
    cbrt_p,
    ceil_p,
    clamp_p,
    convert_element_type_p,
    copy_p,
    cos_p,
    cummax_p,
    cummin_p,
    cumprod_p,
    cumsum_p,
    div_p,
    dot_general_p,
    eq_p,
    erf_p,
    exp_p,
    expm1_p,
    floor_p,
    gather_p,
    ge_p,
    gt_p,
    integer_pow_p,
    iota_p,
    is_finite_p,
    le_p,
    log1p_p,
    log_p,
    lt_p,
    max_p,
    min_p,
    mul_p,
    ne_p,
    neg_p,
    not_p,
    or_p,
    population_count_p,
    pow_p,
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum_p,
    rem_p,
    reshape_p,
    round_p,
    rsqrt_p,
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    select_n_p,
    shift_left_p,
    shift_right_arithmetic_p,
    shift_right_logical_p,
    sign_p,
    sin_p,
    sqrt_p,
    sub_p,
    tan_p,
    tanh_p,
    transpose_p,
    xor_p,
)

from tessellate_ipu.lax import tile_random  # noqa: F401 - the same
from tessellate_ipu.lax.tile_random import (  # noqa: F401 - the same
    tile_get_hw_seeds,
    tile_random_normal,
    tile_random_uniform,
    tile_set_hw_seeds,
)
from tremula.frontends.jax.tessellate.lax import (  # noqa: F401 - the same
    IN_PLACE,
    fill_p,
    rotation2d_p,
    scaled_add_p,
    scaled_sub_p,
    tile_copy,
    tile_fill,
    tile_rotation2d,
)


class IpuConvVertexType(IntEnum):
    """Which unit of a tile multiplies matrices; accepted, since the compiler chooses."""

    Automatic = 0
    ConvPartial1x1 = 1
    ConvPartialHMAC = 2


globals().update(IN_PLACE)
