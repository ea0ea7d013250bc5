"""popsolver: the best solution of every model, against trying everything."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.errors import PoplarError
from tremula.poplibs.popsolver import Model


def test_bounds():
    """The least value of a variable; none between contradicting bounds."""
    model = Model()
    x = model.add_variable(5, 10)
    assert model.minimize(x)[x] == 5
    y = model.add_variable(2, 5)
    model.less_or_equal(y, 1)
    result = model.minimize(y)
    assert not result.valid_solution()
    with pytest.raises(PoplarError, match="no solution"):
        _ = result[y]


def test_the_first_objective_counts_most():
    """Of a + b >= 5, (a, b) makes a least and (b, a) makes b least."""
    model = Model()
    a, b = model.add_variable(1, 10), model.add_variable(1, 10)
    model.less_or_equal(5, model.sum([a, b]))
    first, second = model.minimize([a, b]), model.minimize([b, a])
    assert (first[a], first[b]) == (1, 4)
    assert (second[a], second[b]) == (4, 1)


def test_divisors():
    """Divisors that give distinct quotients, factors, products."""
    left = []
    for value in range(1, 11):
        model = Model()
        b = model.add_variable(value, value)
        model.ceildiv_constrain_divisor(10, b)
        if model.minimize(b).valid_solution():
            left.append(value)
    assert left == [1, 2, 3, 4, 5, 10]
    model = Model()
    b = model.add_variable()
    model.factor_of(12, b)
    model.less(4, b)
    assert model.minimize(b)[b] == 6
    model = Model()
    x, y = model.add_variable(1, 12), model.add_variable(1, 12)
    model.equal(model.product([x, y]), 12)
    total = model.sum([x, y])
    assert model.minimize(total)[total] == 7


def test_large_numbers_do_not_wrap():
    """Bounds near 2**64 stay bounds; a factor of a large number is found at once."""
    model = Model()
    a, b = model.add_variable(2**40, 2**50), model.add_variable(2**30, 2**50)
    model.less_or_equal(model.product([a, b]), 2**63)  # the least product is 2**70
    assert not model.minimize(a).valid_solution()
    model = Model()
    b = model.add_variable(10**9, 10**12)
    model.factor_of(10**12, b)
    assert model.minimize(b)[b] == 10**9


def test_what_does_not_matter_is_not_searched():
    """A variable that nothing depends on has 2**64 values; none but the first is tried."""
    model = Model()
    x, _ = model.add_variable(3, 7), model.add_variable()
    assert model.minimize(x)[x] == 3


def test_empty_lists():
    """No sum is 0, no product 1; no largest."""
    model = Model()
    result = model.minimize(model.sum([]))
    assert result[model.sum([])] == 0
    assert model.minimize(model.product([]))[model.one()] == 1
    with pytest.raises(PoplarError, match="max needs at least one"):
        model.max([])


def test_calls_may_forbid():
    """A function of known values; where it gives nothing, there is no solution."""
    model = Model()
    x = model.add_variable(0, 9)
    cost = model.call([x], lambda v: None if v[0] % 2 == 0 else (v[0] - 5) ** 2 + 1)
    result = model.minimize(cost)
    assert (result[x], result[cost]) == (5, 1)
    model.less_or_equal(x, 0)
    assert not model.minimize(cost).valid_solution()


def test_priorities_choose_among_equals():
    """What is fixed first is as small as it can be; circles of wishes are refused."""
    for first in (0, 1):
        model = Model()
        a, b = model.add_variable(0, 5), model.add_variable(0, 5)
        total = model.sum([a, b])
        model.equal(total, 5)
        group = model.add_priority_group()
        model.set_priority_group((a, b)[first], group)
        model.prioritise_over(group, model.get_default_priority_group())
        assert model.minimize(total)[(a, b)[first]] == 0
    with pytest.raises(PoplarError, match="already comes after"):
        model.prioritise_over(model.get_default_priority_group(), group)


def test_wrong_variables_are_named():
    """Bounds outside 64 bits, variables of another model."""
    model, other = Model(), Model()
    with pytest.raises(PoplarError, match="0 … 2"):
        model.add_variable(-1, 2)
    for _ in range(3):
        far = other.add_variable()
    with pytest.raises(PoplarError, match="not a variable of this model"):
        model.less(far, 1)


# -- random models against trying everything -------------------------------------------------------

_BINARY = {
    "sum": (lambda m, a, b: m.sum([a, b]), lambda a, b: a + b),
    "product": (lambda m, a, b: m.product([a, b]), lambda a, b: a * b),
    "max": (lambda m, a, b: m.max([a, b]), max),
    "min": (lambda m, a, b: m.min([a, b]), min),
    "sub": (lambda m, a, b: m.sub(a, b), lambda a, b: a - b if a >= b else None),
    "floordiv": (lambda m, a, b: m.floordiv(a, b), lambda a, b: a // b if b else None),
    "ceildiv": (lambda m, a, b: m.ceildiv(a, b), lambda a, b: -(-a // b) if b else None),
    "mod": (lambda m, a, b: m.mod(a, b), lambda a, b: a % b if b else None),
    "less": (lambda m, a, b: m.reified_less(a, b), lambda a, b: int(a < b)),
    "less_or_equal": (lambda m, a, b: m.reified_less_or_equal(a, b), lambda a, b: int(a <= b)),
    "equal": (lambda m, a, b: m.reified_equal(a, b), lambda a, b: int(a == b)),
    "or": (lambda m, a, b: m.boolean_or(a, b), lambda a, b: int(bool(a or b))),
    "and": (lambda m, a, b: m.boolean_and(a, b), lambda a, b: int(bool(a and b))),
    "not": (lambda m, a, _: m.boolean_not(a), lambda a, _: int(not a)),
}


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=3),
    st.lists(
        st.tuples(st.sampled_from(sorted(_BINARY)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=4,
    ),
    st.lists(
        st.tuples(st.sampled_from(["<", "<=", "==", "|"]), st.integers(0, 9), st.integers(0, 9)),
        max_size=2,
    ),
    st.integers(0, 9),
)
def test_the_best_of_all_assignments_is_found(bounds, steps, constraints, objective):
    """Random expressions and constraints: the same least value as from trying every assignment."""
    model = Model()
    ranges = [(min(pair), max(pair)) for pair in bounds]
    variables = [model.add_variable(*pair) for pair in ranges]
    for name, i, j in steps:
        a, b = variables[i % len(variables)], variables[j % len(variables)]
        variables.append(_BINARY[name][0](model, a, b))
    for sign, i, j in constraints:
        a, b = variables[i % len(variables)], variables[j % len(variables)]
        post = {"<": model.less, "<=": model.less_or_equal, "==": model.equal, "|": model.factor_of}
        post[sign](a, b)
    chosen = objective % len(variables)
    result = model.minimize(variables[chosen])
    values = list(_assignments(ranges, steps, constraints))
    if not values:
        assert not result.valid_solution()
    else:
        assert result[variables[chosen]] == min(v[chosen] for v in values)
        assert [result[v] for v in variables] in values


def _assignments(ranges, steps, constraints):
    for choice in itertools.product(*(range(low, high + 1) for low, high in ranges)):
        values = list(choice)
        for name, i, j in steps:
            value = _BINARY[name][1](values[i % len(values)], values[j % len(values)])
            if value is None:
                break
            values.append(value)
        else:
            if all(_holds(sign, values, i, j) for sign, i, j in constraints):
                yield values


def _holds(sign, values, i, j):
    a, b = values[i % len(values)], values[j % len(values)]
    if sign == "|":
        return b > 0 and a % b == 0
    return {"<": a < b, "<=": a <= b, "==": a == b}[sign]
