"""Translation of errors: a front end's own pass through, others are replaced and named as cause."""

import pytest

import popart
import poptorch
from tremula.base.errors import GraphMemoryAllocationError, InvalidOption, PoplarError
from tremula.frontends.popart.exceptions import popart_errors
from tremula.frontends.poptorch.exceptions import poptorch_errors
from tremula.frontends.shared.errors import translated_errors


class OwnError(PoplarError):
    pass


def to_own(error: PoplarError) -> OwnError:
    return OwnError(f"own: {error.what}", hint=error.hint)


def test_other_errors_are_translated():
    """An error of another layer is raised as the front end's, with its hint and as its cause."""
    original = InvalidOption("no such option", hint="choose another")
    own = translated_errors(OwnError, to_own)
    with pytest.raises(OwnError, match="own: no such option") as caught, own:
        raise original
    assert caught.value.__cause__ is original
    assert caught.value.hint == "choose another"


@pytest.mark.parametrize("error", [OwnError("mine"), ValueError("python's"), KeyboardInterrupt()])
def test_own_and_foreign_errors_pass_through(error):
    """The front end's own errors and those of Python are raised unchanged."""
    with pytest.raises(type(error)) as caught, translated_errors(OwnError, to_own):
        raise error
    assert caught.value is error


def test_out_of_memory_in_each_front_end():
    """A full tile is PopART's OutOfMemoryException, and PopTorch's Error by Poplar's name."""
    full = GraphMemoryAllocationError("tile 3 is full")
    with pytest.raises(popart.OutOfMemoryException) as of_popart, popart_errors():
        raise full
    assert of_popart.value.getSummaryReport() == "tile 3 is full"
    with pytest.raises(poptorch.Error) as of_poptorch, poptorch_errors():
        raise full
    assert of_poptorch.value.type == "poplar_graph_memory_allocation_error"
    assert "poptorch.BeginBlock" in of_poptorch.value.hint
