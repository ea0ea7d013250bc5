"""PopTorch's errors: their parts, their text, their kinds."""

import pickle

import pytest

import poptorch
from poptorch import poptorch_core
from tremula.base.errors import PoplarError


def test_one_class():
    """poptorch.Error and poptorch_core.Error are the same class, one of Tremula's errors."""
    assert poptorch.Error is poptorch_core.Error
    assert issubclass(poptorch.Error, PoplarError)
    assert issubclass(poptorch.RecoverableError, poptorch.Error)
    assert issubclass(poptorch.UnrecoverableError, poptorch.Error)


def test_text_of_an_error():
    """The message stands alone in `message` and behind its type in the text."""
    error = poptorch.createPoptorchError("Device is not attached")
    assert error.type == "poptorch_py_error"
    assert error.message == "Device is not attached"
    assert error.location == ""
    assert str(error) == "'poptorch_py_error': Device is not attached"
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        raise error


def test_location_is_shown():
    """A known location is part of the text, but not of the message."""
    error = poptorch.Error("popart_exception", "too large", "line 3")
    assert str(error) == "'popart_exception': too large\nError raised in:\nline 3"
    assert error.message == "too large"


def test_errors_survive_pickling():
    """An error that comes from another process keeps its class and all parts."""
    error = poptorch.RecoverableError("a", "b", "c", "LINK_RESET")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is poptorch.RecoverableError
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", poptorch_core.TestErrorType.__members__.values())
def test_every_test_error_is_an_error(kind):
    """Each kind of failure can be tried out and says where it comes from."""
    with pytest.raises(poptorch.Error) as caught:
        poptorch_core._throwTestError(kind)
    assert "throwTestError::bottomLevel" in caught.value.args[0]
    assert caught.value.location.count("throwTestError::topLevel") == 1
    assert "throwTestError" not in caught.value.message


def test_kinds_of_machine_failures():
    """A recoverable failure says how; an unrecoverable one has another class."""
    kinds = poptorch_core.TestErrorType
    with pytest.raises(poptorch.RecoverableError) as caught:
        poptorch_core._throwTestError(kinds.PoplarRecoverableFullReset)
    assert caught.value.recovery_action == "FULL_RESET"
    assert caught.value.type == "poplar_recoverable_runtime_error"
    with pytest.raises(poptorch.UnrecoverableError) as caught:
        poptorch_core._throwTestError(kinds.PoplarUnrecoverable)
    assert caught.value.type == "poplar_unrecoverable_runtime_error"
    with pytest.raises(poptorch.Error, match="-lfoo not found") as caught:
        poptorch_core._throwTestError(kinds.PoplarLinkError)
    assert caught.value.type == "poplar_link_error"
