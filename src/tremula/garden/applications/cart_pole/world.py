"""Carts with poles, many at once: what an action does to them, and when one has fallen.

The equations, constants and limits are those of Barto, Sutton and Anderson (1983), as classic
control tasks use them: a push of 10 N to the left or right every 20 ms.
"""

import jax
import jax.numpy as jnp

GRAVITY, CART_KG, POLE_KG, HALF_LENGTH_M = 9.8, 1.0, 0.1, 0.5
PUSH_N, STEP_S = 10.0, 0.02
FARTHEST_M, STEEPEST_RAD = 2.4, 0.2095  # 12 degrees


def moved(state: jax.Array, is_right: jax.Array) -> jax.Array:
    """The carts `float32[n, 4]` (place, speed, angle, angular speed) after one push each."""
    _, speed, angle, turning = (state[:, i] for i in range(4))
    force = jnp.where(is_right, PUSH_N, -PUSH_N)
    sine, cosine, total = jnp.sin(angle), jnp.cos(angle), CART_KG + POLE_KG
    inner = (force + POLE_KG * HALF_LENGTH_M * turning**2 * sine) / total
    falling = (GRAVITY * sine - cosine * inner) / (
        HALF_LENGTH_M * (4 / 3 - POLE_KG * cosine**2 / total)
    )
    pushed = inner - POLE_KG * HALF_LENGTH_M * falling * cosine / total
    changes = jnp.stack([speed, pushed, turning, falling], 1)
    return state + STEP_S * changes


def stands(state: jax.Array) -> jax.Array:
    """Which carts are on the track with their pole up."""
    return (jnp.abs(state[:, 0]) < FARTHEST_M) & (jnp.abs(state[:, 2]) < STEEPEST_RAD)
