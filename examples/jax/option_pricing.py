"""Monte-Carlo prices of options with their Greeks: gradients through a million random paths.

python option_pricing.py --paths 1000000
"""
# Run by the wide tests.
# Arguments when run as a test: --paths 40000

import argparse
import math

import jax
import jax.numpy as jnp

import tremula
import tremula.jax

STRIKE, YEARS, N_DATES = 100.0, 1.0, 12


def price(market, key, n_paths):
    """Of an Asian call: the mean of its price on twelve dates above the strike, discounted."""
    spot, rate, volatility = market
    step = YEARS / N_DATES
    noise = jax.random.normal(key, (N_DATES, n_paths // 2))
    noise = jnp.concatenate([noise, -noise], axis=1)  # each path and its mirror image
    drift = (rate - volatility**2 / 2) * step

    def one_date(log_price, draw):
        log_price = log_price + drift + volatility * math.sqrt(step) * draw
        return log_price, jnp.exp(log_price)

    start = jnp.full(n_paths, jnp.log(spot))
    _, prices = jax.lax.scan(one_date, start, noise)
    return jnp.exp(-rate * YEARS) * jnp.maximum(prices.mean(0) - STRIKE, 0).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", type=int, default=200_000)
    args = parser.parse_args()

    greeks = tremula.jax.jit(jax.value_and_grad(price), static_argnums=2)
    market = (100.0, 0.03, 0.2)  # spot, interest rate, volatility
    value, (delta, rho, vega) = greeks(market, jax.random.key(7), args.paths)
    print(f"price {float(value):.2f}, delta {float(delta):.2f}, vega {float(vega):.1f}, "
          f"rho {float(rho):.1f} from {args.paths:,} paths")  # fmt: skip

    theirs, _ = jax.jit(jax.value_and_grad(price), static_argnums=2)(
        market, jax.random.key(7), args.paths
    )
    print("the same paths as JAX:", bool(abs(float(value) - float(theirs)) < 1e-3))
    report = greeks.report(market, jax.random.key(7), min(args.paths, 20_000))
    print(f"20,000 paths with gradients on a Bow: {report.total_cycles:,} cycles")


if __name__ == "__main__":
    main()
