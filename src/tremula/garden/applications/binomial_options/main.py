"""Prices a book of European and American options, and compares it with Black and Scholes."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.binomial_options.program import OptionColumns, option_engine
from tremula.garden.models.science.black_scholes import european


def run(settings: Settings) -> Findings:
    n, n_tiles, steps_per_year = (600, 32, 256) if settings.tiny else (26_496, 1472, 1024)
    options = book(n, steps_per_year)
    settings.show(
        f"{n:,} options on {n_tiles} tiles, trees of {options.n_steps.min()} to "
        f"{options.n_steps.max()} steps, half of them American"
    )
    in_turn = option_engine(options, n_tiles, balanced=False).load()
    engine = option_engine(options, n_tiles).load()
    for one in (in_turn, engine):
        one.write_tensor("terms", options.terms)
        one.run()
    prices = engine.read_tensor("prices")
    modelled = modelled_engine(engine, settings, n_items=n, unit="options/s")
    gain = in_turn.report().total_cycles / modelled.cycles
    settings.show(f"  balanced by the size of trees: {gain:.2f} times as fast as in turn")
    errors = against_black_scholes(options, prices, engine.read_tensor("deltas"))
    premium = early_exercise(options, prices)
    settings.show(
        f"  European: within {errors[0]:.1e} of the strike of Black and Scholes; American puts: "
        f"up to {premium:.1%} of the strike dearer"
    )
    return Findings(
        results={
            "european_error": errors[0],
            "delta_error": errors[1],
            "largest_premium": premium,
            "gain_by_balance": gain,
        },
        modelled=modelled,
        curves={"price of American puts by spot": american_put_curve()},
    )


def book(n: int, steps_per_year: int) -> OptionColumns:
    """Calls and puts of three months to two years, with trees of `steps_per_year` steps a year."""
    random = np.random.default_rng(11)
    low, high = (80, 90, 0.01, 0.15, 0.25), (120, 110, 0.06, 0.45, 2.0)
    terms = random.uniform(low, high, (n, 5)).astype(np.float32)
    return OptionColumns(
        terms,
        sign=np.where(random.random(n) < 0.5, 1, -1).astype(np.int32),
        is_american=(np.arange(n) % 2).astype(np.int32),
        n_steps=np.maximum(1, terms[:, 4] * steps_per_year).astype(np.int64),
    )


def against_black_scholes(
    options: OptionColumns, prices: np.ndarray, deltas: np.ndarray
) -> tuple[float, float]:
    """The largest errors of European options: of prices, in parts of the strike, and of deltas."""
    worst = (0.0, 0.0)
    for i in np.flatnonzero(options.is_american == 0):
        terms = options.terms[i].astype(float)
        known = european(*terms, is_call=bool(options.sign[i] > 0))
        error = abs(prices[i] - known.price) / terms[1], abs(deltas[i] - known.delta)
        worst = max(worst[0], float(error[0])), max(worst[1], float(error[1]))
    return worst


def early_exercise(options: OptionColumns, prices: np.ndarray) -> float:
    """The most that an American put costs above a European one, in parts of its strike."""
    puts = np.flatnonzero((options.is_american == 1) & (options.sign < 0))
    terms = options.terms.astype(float)
    premiums = [(prices[i] - european(*terms[i], is_call=False).price) / terms[i, 1] for i in puts]
    return float(max(premiums))


def american_put_curve(n: int = 33) -> list[float]:
    """Prices over spots from 60 to 140, strike 100: they meet the payoff on the left, smoothly."""
    terms = np.tile(np.array([0, 100, 0.05, 0.3, 1.0], np.float32), (n, 1))
    terms[:, 0] = np.linspace(60, 140, n)
    puts = OptionColumns(terms, np.full(n, -1, np.int32), np.ones(n, np.int32), np.full(n, 128))
    engine = option_engine(puts, 8).load()
    engine.write_tensor("terms", terms)
    engine.run()
    return engine.read_tensor("prices").tolist()
