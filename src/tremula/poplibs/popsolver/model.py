"""Model: variables, what relates them, and the solution that makes one of them least."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import overload

import numpy as np

from tremula.base.errors import PoplarError
from tremula.poplibs.popsolver.propagation import ConstraintKind
from tremula.poplibs.popsolver.search import Call, Search, SearchProblem

MAX_VALUE = 2**64 - 1


@dataclass(frozen=True)
class Variable:
    """A number between bounds, known by its place in the model."""

    id: int


@dataclass(frozen=True)
class PriorityGroup:
    """Variables that are fixed before, or after, others."""

    id: int


class Solution:
    """Values of variables; none if the constraints cannot be met."""

    def __init__(self, values: np.ndarray | None, n_evaluated: int):
        self._values, self._n_evaluated = values, n_evaluated

    def valid_solution(self) -> bool:
        """Whether there is one."""
        return self._values is not None

    def __getitem__(self, variable: Variable) -> int:
        if self._values is None:
            raise PoplarError(
                "the model has no solution", hint="ask valid_solution() before reading values"
            )
        return int(self._values[variable.id])

    def constraints_evaluated(self) -> int:
        """How many constraints were applied, in all."""
        return self._n_evaluated

    def __repr__(self) -> str:
        return "Solution(none)" if self._values is None else f"Solution({self._values.tolist()})"


Operand = Variable | int


class Model:
    """Unsigned 64-bit variables and constraints between them; whole numbers stand for constants."""

    def __init__(self) -> None:
        self._low: list[int] = []
        self._high: list[int] = []
        self._names: list[str] = []
        self._constants: dict[int, Variable] = {}
        self._kinds: list[int] = []
        self._members: list[tuple[int, ...]] = []
        self._calls: dict[int, Call] = {}
        self._group_of: list[int] = []
        self._before: list[set[int]] = [set()]  # groups that come before each group

    # -- variables ---------------------------------------------------------------------------------

    def add_variable(self, min: int = 0, max: int = MAX_VALUE, name: str = "") -> Variable:
        """A variable between two bounds, both possible."""
        for bound in (min, max):
            if not isinstance(bound, int | np.integer) or not 0 <= bound <= MAX_VALUE:
                raise PoplarError(f"a bound of a variable is 0 … 2**64 - 1, got {bound!r}")
        self._low.append(int(min))
        self._high.append(int(max))
        self._names.append(name)
        self._group_of.append(0)
        return Variable(len(self._low) - 1)

    def add_constant(self, value: int, name: str = "") -> Variable:
        """A variable that has one value; the same one for the same value."""
        if value not in self._constants:
            self._constants[value] = self.add_variable(value, value, name or str(value))
        return self._constants[value]

    def zero(self) -> Variable:
        """The constant 0."""
        return self.add_constant(0)

    def one(self) -> Variable:
        """The constant 1."""
        return self.add_constant(1)

    def name_of(self, variable: Variable) -> str:
        """The name a variable was given."""
        return self._names[variable.id]

    def _operand(self, value: Operand) -> Variable:
        if isinstance(value, Variable):
            if not 0 <= value.id < len(self._low):
                raise PoplarError(f"{value} is not a variable of this model")
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int | np.integer):
            raise PoplarError(f"expected a variable or a whole number, got {value!r}")
        return self.add_constant(int(value))

    def _post(self, kind: ConstraintKind, *operands: Operand) -> int:
        members = tuple(self._operand(v).id for v in operands)  # a wrong one changes nothing
        self._kinds.append(int(kind))
        self._members.append(members)
        return len(self._kinds) - 1

    def _result(
        self, kind: ConstraintKind, *operands: Operand, name: str = "", max: int = MAX_VALUE
    ) -> Variable:
        checked = [self._operand(v) for v in operands]
        result = self.add_variable(0, max, name)
        self._post(kind, result, *checked)
        return result

    # -- arithmetic --------------------------------------------------------------------------------

    def sum(self, variables: Iterable[Operand], name: str = "") -> Variable:
        """Their sum; 0 for none."""
        operands = list(variables)
        return self._result(ConstraintKind.SUM, *operands, name=name) if operands else self.zero()

    def product(self, variables: Iterable[Operand], name: str = "") -> Variable:
        """Their product, as a balanced tree of pairs; 1 for none."""
        left = [self._operand(v) for v in variables]
        if not left:
            return self.one()
        while len(left) > 1:
            pairs = zip(left[::2], left[1::2], strict=False)
            rest = left[len(left) // 2 * 2 :]
            left = [self._result(ConstraintKind.PRODUCT, a, b, name=name) for a, b in pairs] + rest
        return left[0]

    def max(self, variables: Sequence[Operand], name: str = "") -> Variable:
        """The largest of them."""
        return self._result(ConstraintKind.MAX, *self._some(variables, "max"), name=name)

    def min(self, variables: Sequence[Operand], name: str = "") -> Variable:
        """The least of them."""
        return self._result(ConstraintKind.MIN, *self._some(variables, "min"), name=name)

    @staticmethod
    def _some(variables: Sequence[Operand], what: str) -> list[Operand]:
        result = list(variables)
        if not result:
            raise PoplarError(f"{what} needs at least one variable")
        return result

    def sub(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """The difference; that it is not negative becomes a constraint."""
        left, right = self._operand(left), self._operand(right)
        result = self.add_variable(name=name)
        self._post(ConstraintKind.SUM, left, result, right)
        return result

    def floordiv(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """The quotient, rounded down; that `right` is not 0 becomes a constraint."""
        return self._result(ConstraintKind.FLOORDIV, left, right, name=name)

    def ceildiv(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """The quotient, rounded up."""
        return self._result(ConstraintKind.CEILDIV, left, right, name=name)

    def mod(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """What is left of `left` after whole multiples of `right`."""
        whole = self.product([self.floordiv(left, right), right])
        return self.sub(left, whole, name)

    def ceildiv_constrain_divisor(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """The quotient, rounded up; of divisors with the same quotient only the least remains."""
        quotient = self.ceildiv(left, right, name)
        self.less(self.product([quotient, right]), self.sum([left, quotient]))
        return quotient

    # -- constraints -------------------------------------------------------------------------------

    def less(self, left: Operand, right: Operand) -> None:
        """Demand left < right."""
        self._post(ConstraintKind.LESS, left, right)

    def less_or_equal(self, left: Operand, right: Operand) -> None:
        """Demand left <= right."""
        self._post(ConstraintKind.LESS_OR_EQUAL, left, right)

    def equal(self, left: Operand, right: Operand) -> None:
        """Demand left == right."""
        self._post(ConstraintKind.EQUAL, left, right)

    def factor_of(self, left: Operand, right: Operand) -> None:
        """Demand that `right` divides `left`."""
        self._post(ConstraintKind.FACTOR_OF, left, right)
        self.equal(self.mod(left, right), 0)

    def reified_less(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """1 if left < right, else 0."""
        return self._result(ConstraintKind.REIFIED_LESS, left, right, name=name, max=1)

    def reified_less_or_equal(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """1 if left <= right, else 0."""
        return self._result(ConstraintKind.REIFIED_LESS_OR_EQUAL, left, right, name=name, max=1)

    def reified_equal(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """1 if left == right, else 0."""
        return self._result(ConstraintKind.REIFIED_EQUAL, left, right, name=name, max=1)

    def boolean_or(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """1 if one of them is not 0."""
        return self._result(ConstraintKind.OR, left, right, name=name, max=1)

    def boolean_and(self, left: Operand, right: Operand, name: str = "") -> Variable:
        """1 if both are not 0."""
        return self._result(ConstraintKind.AND, left, right, name=name, max=1)

    def boolean_not(self, variable: Operand, name: str = "") -> Variable:
        """1 if it is 0."""
        return self._result(ConstraintKind.NOT, variable, name=name, max=1)

    def call(self, variables: Sequence[Operand], function: Call, name: str = "") -> Variable:
        """What a function makes of the values of variables, once all are known.

        It gets a list of whole numbers and gives one, or None where no value is allowed.
        """
        operands = [self._operand(v) for v in variables]
        if not callable(function):
            raise PoplarError(f"call needs a function of a list of whole numbers, got {function!r}")
        result = self.add_variable(name=name)
        self._calls[self._post(ConstraintKind.CALL, result, *operands)] = function
        return result

    # -- order of branching ------------------------------------------------------------------------

    def add_priority_group(self) -> PriorityGroup:
        """A new group, with no order to the others yet."""
        self._before.append(set())
        return PriorityGroup(len(self._before) - 1)

    def get_default_priority_group(self) -> PriorityGroup:
        """The group of variables for which nothing else is said."""
        return PriorityGroup(0)

    def set_priority_group(self, variable: Variable, group: PriorityGroup) -> None:
        """Put a variable into a group."""
        self._check_group(group)
        self._group_of[self._operand(variable).id] = group.id

    def _check_group(self, group: PriorityGroup) -> None:
        if not 0 <= group.id < len(self._before):
            raise PoplarError(f"{group} is not a group of this model")

    def prioritise_over(self, first: PriorityGroup, second: PriorityGroup) -> None:
        """Fix the variables of `first` before those of `second`."""
        self._check_group(first)
        self._check_group(second)
        if first == second or second.id in self._all_before(first.id):
            raise PoplarError(f"{first} cannot come before {second}: it already comes after it")
        self._before[second.id].add(first.id)

    def _all_before(self, group: int) -> set[int]:
        result, left = set(), [group]
        while left:
            new = self._before[left.pop()] - result
            result |= new
            left += new
        return result

    def _ranks(self) -> np.ndarray:
        """Groups in an order that satisfies every request, as a number for each variable."""

        @cache
        def depth(group: int) -> int:
            return max((depth(g) + 1 for g in self._before[group]), default=0)

        return np.array([depth(group) for group in self._group_of], dtype=np.int64)

    # -- solving -----------------------------------------------------------------------------------

    @overload
    def minimize(self, objective: Variable) -> Solution: ...
    @overload
    def minimize(self, objective: Sequence[Variable]) -> Solution: ...
    def minimize(self, objective: Variable | Sequence[Variable]) -> Solution:
        """The solution in which an expression is least; of several, the first counts most."""
        objectives = [objective] if isinstance(objective, Variable) else list(objective)
        places = [self._operand(v).id for v in objectives]
        if not places:
            raise PoplarError("minimize needs at least one variable")
        lengths = [len(members) for members in self._members]
        problem = SearchProblem(
            np.array(self._low, np.uint64),
            np.array(self._high, np.uint64),
            np.array(self._kinds, np.int64),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array([v for members in self._members for v in members], np.int64),
            self._calls,
            self._ranks(),
        )
        search = Search(problem, places)
        return Solution(search.run(), search.n_applied)
