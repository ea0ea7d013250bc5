"""The B3LYP functional of a closed shell: energy per volume from the density and its gradient.

    0.08 Slater + 0.72 Becke 88 + 0.19 VWN (RPA) + 0.81 LYP,   and 0.2 of the exact exchange

Atomic units. ρ is the density of all electrons, σ = |∇ρ|². Formulas: Becke, Phys. Rev. A 38 (1988);
Vosko, Wilk, Nusair, Can. J. Phys. 58 (1980); Miehlich et al., Chem. Phys. Lett. 157 (1989) for LYP.
"""

import math

import jax
import jax.numpy as jnp

EXACT_EXCHANGE = 0.2
# Where there is hardly any electron, powers of ρ leave the range of float32: nothing is counted.
LEAST_DENSITY = 1e-8


def energy_per_volume(rho: jax.Array, sigma: jax.Array) -> jax.Array:
    """Exchange and correlation without the exact exchange, in hartree per cubic bohr."""
    is_empty = rho < LEAST_DENSITY
    rho = jnp.where(is_empty, 1.0, rho)
    sigma = jnp.where(is_empty, 0.0, sigma)
    slater = slater_exchange(rho)
    exchange = 0.08 * slater + 0.72 * (slater + becke_correction(rho, sigma))
    correlation = 0.19 * vwn_correlation(rho) + 0.81 * lyp_correlation(rho, sigma)
    return jnp.where(is_empty, 0.0, exchange + correlation)


def slater_exchange(rho: jax.Array) -> jax.Array:
    return -0.75 * (3 / math.pi) ** (1 / 3) * rho ** (4 / 3)


def becke_correction(rho: jax.Array, sigma: jax.Array) -> jax.Array:
    """What Becke's exchange adds to Slater's."""
    beta = 0.0042
    of_spin = rho / 2
    x = jnp.sqrt(sigma / 4 + 1e-30) * of_spin ** (-4 / 3)  # the root has a derivative at 0, too
    per_spin = -beta * of_spin ** (4 / 3) * x**2 / (1 + 6 * beta * x * jnp.arcsinh(x))
    return 2 * per_spin


def vwn_correlation(rho: jax.Array) -> jax.Array:
    """The fit to correlation in the random phase approximation, without polarisation."""
    a, x0, b, c = 0.0310907, -0.409286, 13.0720, 42.7198
    x = (3 / (4 * math.pi * rho)) ** (1 / 6)  # the root of the radius of an electron's share

    def polynomial(x: jax.Array | float) -> jax.Array | float:
        return x * x + b * x + c

    q = math.sqrt(4 * c - b * b)
    angle = jnp.arctan(q / (2 * x + b))
    first = jnp.log(x * x / polynomial(x)) + 2 * b / q * angle
    second = jnp.log((x - x0) ** 2 / polynomial(x)) + 2 * (b + 2 * x0) / q * angle
    return rho * a * (first - b * x0 / polynomial(x0) * second)


def lyp_correlation(rho: jax.Array, sigma: jax.Array) -> jax.Array:
    a, b, c, d = 0.04918, 0.132, 0.2533, 0.349
    kinetic = 0.3 * (3 * math.pi**2) ** (2 / 3)
    third = rho ** (-1 / 3)
    screened = 1 / (1 + d * third)
    delta = c * third + d * third * screened
    # ω ρ² ρ^(8/3) is of order one: so nothing overflows where ρ is small.
    omega = jnp.exp(-c * third) * screened
    of_spin = sigma / 4  # of the gradient of one spin's density
    local = kinetic * 2 ** (11 / 3) * 2 * 0.5 ** (8 / 3) * rho
    per_density = rho ** (-5 / 3)
    gradient = (47 - 7 * delta) / 18 * sigma
    gradient -= (45 - delta) / 18 * 2 * of_spin
    gradient -= (delta - 11) / 9 * of_spin
    others = -2 / 3 * sigma + 2 * (2 / 3 - 1 / 4) * of_spin
    inner = 0.25 * (local + gradient * per_density) + others * per_density
    return -a * screened * rho - a * b * omega * inner
