"""Wrong arguments of public functions are named, in the user's words."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

import tremula
from tests.sources import ROOT
from tremula.base.errors import PoplarError, TypeMismatch
from tremula.base.names.argument_types import explains_arguments, fits, words_of
from tremula.hardware import chip_from_toml
from tremula.poplibs import poplin, popsolver, popsparse


@pytest.mark.parametrize(
    ("value", "hint", "is_right"),
    [
        (3, int, True), (3, float, True), (3.5, int, False), ("3", int, False), (True, bool, True),
        (None, int | None, True), ("x", int | None, False), ([1, 2], Sequence[int], True),
        ("12", Sequence[int], False), ([1, "2"], list[int], False),
        ((1, "a"), tuple[int, str], True), ([1], Iterable[int], True),
        (["1"], Iterable[int], False), ("12", Iterable[str], True),
        ((1, 2, 3), tuple[int, ...], True), ((1, 2), tuple[int, int, int], False),
        (ROOT, "PosixPath", True), (3, "PosixPath", False), (3, "list[Unknown]", True),
    ],
)  # fmt: skip
def test_values_and_annotations(value, hint, is_right):
    """Plain types, unions, sequences and names that only type checkers know."""
    assert fits(value, hint) is is_right


def test_annotations_in_words():
    """A message needs no knowledge of Python's annotations."""
    assert words_of(int | float | None) == "a whole number or a number or None"
    assert words_of(Sequence[str]) == "a sequence, each of which is a text"


def test_a_wrong_argument_is_named():
    """The function, the argument, what it must be, what came, and the user's line."""
    graph = tremula.Graph(tremula.IPUModel("ipu2", tiles_per_ipu=2).create_device())
    x = graph.add_variable("float", [2], "x", mapping=0)
    pattern = r"normalise: argument 'gamma' must be a Tensor, got dict[\s\S]*test_argument_types"
    with pytest.raises(TypeMismatch, match=pattern):
        poplin.normalise(graph, x.reshape([1, 2]), {}, x, tremula.Sequence())
    with pytest.raises(TypeMismatch, match="argument 'text' must be a text, got int"):
        chip_from_toml(3)


def test_popsparse_names_wrong_arguments():
    """Functions and methods of sparse matrices, blocks without elements among them."""
    with pytest.raises(popsparse.SparsityError, match="blocks of 0 × 3"):
        popsparse.CSRMatrix.from_dense(np.eye(3), (0, 3))
    matrix = popsparse.COOMatrix.from_dense(np.eye(4))
    with pytest.raises(popsparse.SparsityError, match="a block of 0 × 1"):
        matrix.with_block((0, 1))
    graph = tremula.Graph(tremula.IPUModel("ipu2", tiles_per_ipu=2).create_device())
    x = graph.add_variable("float", [2, 2], "x", mapping=0)
    with pytest.raises(TypeMismatch, match="argument 'lhs' must be"):
        popsparse.static.sparse_dense_mat_mul(graph, None, x, tremula.Sequence())


def test_assertions_meant_for_users_stay():
    """An assertion with a message is the function's answer; one without is not."""

    @explains_arguments
    def asserting(text: str, message: str = "") -> None:
        if message:
            raise AssertionError(message)
        raise AssertionError

    with pytest.raises(AssertionError, match="no model"):
        asserting(3, "no model")
    with pytest.raises(TypeMismatch, match="'text' must be a text, got int"):
        asserting(3)


def test_other_errors_stay():
    """An error that no argument explains is not hidden."""

    @explains_arguments
    def broken(n: int) -> int:
        return {}[n]

    with pytest.raises(KeyError):
        broken(3)
    with pytest.raises(TypeMismatch, match="'n' must be a whole number, got str"):
        broken("x")


def test_a_rejected_constraint_leaves_the_model_as_it_was():
    """A model that has rejected an operand still solves, with the constraints that it took."""
    model = popsolver.Model()
    x = model.add_variable(2, 9)
    with pytest.raises(PoplarError, match="expected a variable or a whole number, got 'much'"):
        model.less(x, "much")
    with pytest.raises(PoplarError):
        model.sum([x, None])
    model.less(4, x)
    assert model.minimize(x)[x] == 5
