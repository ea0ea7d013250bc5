"""`import popart`: the choices that options of PopTorch take, and the log."""

import enum
import logging
import pickle
import re

import pytest

import popart
import poptorch
from poptorch import poptorch_core
from tremula.frontends.popart.options.table import OPTIONS
from tremula.frontends.poptorch.options.popart import KNOWN_OPTIONS

ENUMS = [value for value in vars(popart).values() if isinstance(value, enum.EnumMeta)]
ENUM_OF_OPTION = {
    name: row.choices for name, row in OPTIONS.items() if row.choices and row.is_set_by_name
}
CHOICES = [(option, choice) for option, kind in ENUM_OF_OPTION.items() for choice in kind]


def checked(option, value):
    """Options with one value for the compiler, after the check that a compilation makes."""
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options._Popart.set(option, value)
    poptorch_core._validateOptions(options.toDict())
    return options


@pytest.mark.parametrize(("option", "choice"), CHOICES, ids=str)
def test_options_take_choices_and_their_numbers(option, choice):
    """A choice of PopART and its number are the same option, in value, text and file."""
    by_name, by_number = checked(option, choice), checked(option, int(choice))
    assert type(by_name.Popart.get(option)) is int
    assert repr(by_name) == repr(by_number)
    assert pickle.dumps(by_name.toDict()) == pickle.dumps(by_number.toDict())


@pytest.mark.parametrize("option", ENUM_OF_OPTION)
def test_numbers_that_no_choice_has(option):
    """A number without a choice is an error that lists the choices."""
    kind = ENUM_OF_OPTION[option]
    assert option in KNOWN_OPTIONS["uint64"]
    with pytest.raises(poptorch.Error, match=f"{kind.__name__} out of range: {re.escape(option)}"):
        checked(option, len(kind))


@pytest.mark.parametrize("kind", ENUMS, ids=lambda kind: kind.__name__)
def test_choices_count_from_zero(kind):
    """Choices are numbered 0, 1, … and read as in a script."""
    assert sorted(map(int, kind)) == list(range(len(kind)))
    assert all(str(choice) == f"{kind.__name__}.{choice.name}" for choice in kind)
    assert kind.__name__ in popart.__all__


def test_choices_in_containers_and_levels():
    """Choices in sets and levels of patterns are numbers, too."""
    options = checked("hardwareInstrumentations", {popart.Instrumentation.Inner})
    assert repr(options.Popart.get("hardwareInstrumentations")) == "{1}"
    options._Popart.setPatterns({"PadSum": True}, popart.PatternsLevel.All)
    assert type(options._Popart.patterns_level) is int


def test_names_that_do_not_exist():
    """A name that PopART does not have is an AttributeError that names what is near."""
    with pytest.raises(AttributeError, match=r"did you mean .*RecomputationType"):
        popart.RecomputationTyp  # noqa: B018
    assert not hasattr(popart, "_core")


@pytest.fixture
def quiet_again():
    log = logging.getLogger("popart")
    before = log.level
    yield log
    log.setLevel(before)


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("TRACE", ["debug", "info", "warning", "error", "critical"]),
        ("DEBUG", ["debug", "info", "warning", "error", "critical"]),
        ("INFO", ["info", "warning", "error", "critical"]),
        ("WARN", ["warning", "error", "critical"]),
        ("ERR", ["error", "critical"]),
        ("CRITICAL", ["critical"]),
        ("OFF", []),
    ],
)
def test_levels_of_the_log(level, shown, quiet_again, capsys):
    """A level of the log hides what is below it; lines have PopTorch's form, on stderr."""
    log = popart.getLogger()
    log.setLevel(level)
    for write in (log.debug, log.info, log.warn, log.error, log.critical):
        write("100 % done")
    lines = capsys.readouterr().err.splitlines()
    form = re.compile(r"\[\d\d:\d\d:\d\d\.\d{3}\] \[popart\] \[(\w+)\] 100 % done")
    assert [form.fullmatch(line)[1] for line in lines] == shown


def test_modules_of_the_log(quiet_again, capsys):
    """One module can be louder than the rest; an unknown level is an error."""
    popart.getLogger("session").setLevel("DEBUG")
    popart.getLogger("session").debug("one")
    popart.getLogger("ir").debug("two")
    assert "one" in (text := capsys.readouterr().err)
    assert "two" not in text
    with pytest.raises(ValueError, match="Unknown log level: LOUD"):
        popart.getLogger().setLevel("LOUD")
