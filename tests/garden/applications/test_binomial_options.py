"""Binomial trees on tiles: a tree in NumPy, Black and Scholes, textbook values, balance."""

import numpy as np
import pytest

import tremula as tr
from tremula.garden.applications.binomial_options.main import book
from tremula.garden.applications.binomial_options.program import OptionColumns, option_engine
from tremula.garden.models.science.black_scholes import european


def tree_by_numpy(terms, sign, is_american, n) -> float:
    """A binomial tree in double precision, node by node."""
    spot, strike, rate, volatility, years = (float(t) for t in terms)
    dt = years / n
    up = np.exp(volatility * np.sqrt(dt))
    chance = (np.exp(rate * dt) - 1 / up) / (up - 1 / up)
    values = np.maximum(sign * (spot * up ** np.arange(-n, n + 1, 2.0) - strike), 0)
    for level in range(n - 1, -1, -1):
        values = np.exp(-rate * dt) * (chance * values[1:] + (1 - chance) * values[:-1])
        if is_american:
            paid = sign * (spot * up ** np.arange(-level, level + 1, 2.0) - strike)
            values = np.maximum(values, paid)
    return float(values[0])


def priced(options: OptionColumns, n_tiles: int = 3) -> tuple[np.ndarray, np.ndarray]:
    engine = option_engine(options, n_tiles).load()
    engine.write_tensor("terms", options.terms)
    engine.run()
    return engine.read_tensor("prices"), engine.read_tensor("deltas")


def test_trees_equal_numpy():
    """European and American, calls and puts, odd and even numbers of steps, down to one."""
    options = book(24, 40)
    options.n_steps[:4] = (1, 2, 3, 4)
    prices, _ = priced(options)
    columns = zip(options.terms, options.sign, options.is_american, options.n_steps, strict=True)
    expected = [tree_by_numpy(*option) for option in columns]
    np.testing.assert_allclose(prices, expected, rtol=2e-4, atol=2e-3)


def test_known_values():
    """Hull's five-step American put, 4.49; a European call of Black and Scholes, 10.45."""
    terms = np.array([[50, 50, 0.1, 0.4, 5 / 12], [100, 100, 0.05, 0.2, 1]], np.float32)
    options = OptionColumns(
        terms, np.array([-1, 1], np.int32), np.array([1, 0], np.int32), np.array([5, 800])
    )
    prices, deltas = priced(options)
    known = european(100, 100, 0.05, 0.2, 1, is_call=True)
    assert prices[0] == pytest.approx(4.49, abs=0.005)
    assert known.price == pytest.approx(10.4506, abs=1e-4)
    assert prices[1] == pytest.approx(known.price, abs=0.01)
    assert deltas[1] == pytest.approx(known.delta, abs=1e-3)


def test_puts_and_calls_are_in_parity():
    """Call - put = spot - discounted strike: Black and Scholes' formula, both kinds."""
    call, put = (european(90, 100, 0.03, 0.3, 1.5, is_call=is_call) for is_call in (True, False))
    assert call.price - put.price == pytest.approx(90 - 100 * np.exp(-0.045), abs=1e-10)
    assert call.delta - put.delta == pytest.approx(1)


def test_balance_pays():
    """Dealing options out by the size of their trees takes fewer cycles than in turn."""
    options = book(60, 60)
    reports = []
    for balanced in (True, False):
        engine = option_engine(options, 3, balanced=balanced).load()
        engine.write_tensor("terms", options.terms)
        engine.run()
        reports.append(engine.report().total_cycles)
    assert reports[0] < reports[1]


def test_bad_options_are_named():
    """A negative volatility and missing columns are refused with the option's number."""
    options = book(3, 10)
    terms = options.terms.copy()
    terms[1, 3] = -0.2
    with pytest.raises(tr.errors.InvalidOption, match="option 1 has terms"):
        OptionColumns(terms, options.sign, options.is_american, options.n_steps)
    with pytest.raises(tr.errors.InvalidOption, match="2 signs"):
        OptionColumns(options.terms, options.sign[:2], options.is_american, options.n_steps)
