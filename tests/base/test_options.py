"""Engine options: the table, values, the environment, and what is said about mistakes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.errors import InvalidOption
from tremula.base.options import OPTIONS, OptionKind, options_markdown, parse_options


def refused(mapping=None, environ=None) -> str:
    """The text of the error that options raise."""
    with pytest.raises(InvalidOption) as caught:
        parse_options(mapping, environ or {})
    return str(caught.value)


def test_defaults():
    """Without anything given every option has its default, and nothing counts as given."""
    options = parse_options(None, {})
    assert dict(options.values) == {name: spec.default for name, spec in OPTIONS.items()}
    assert options.names_set == ()
    assert options.flag("debug.allowOutOfMemory") is False
    assert options.text("exchange.streamBufferOverlap") == "any"
    assert options.whole("tremula.threads") == 0


def test_text_and_python_values_mean_the_same():
    """Poplar's strings and Python's own values are both understood."""
    as_text = {"debug.strict": "true", "tremula.threads": "2", "target.hostSyncTimeout": "0.5"}
    as_values = {"debug.strict": True, "tremula.threads": 2, "target.hostSyncTimeout": 0.5}
    assert parse_options(as_text, {}) == parse_options(as_values, {})
    assert parse_options({"tremula.cache": Path("kept")}, {}).text("tremula.cache") == "kept"


def test_numbers_may_be_hexadecimal():
    """0x-hex is a number, in whole and in other numbers."""
    options = parse_options({"tremula.seed": "0xBEEF", "target.hostSyncTimeout": "0x10"}, {})
    assert options.whole("tremula.seed") == 0xBEEF
    assert options.values["target.hostSyncTimeout"] == 16


def test_the_environment_overrides_code():
    """POPLAR_ENGINE_OPTIONS wins over code, and only where it says something."""
    environ = {"POPLAR_ENGINE_OPTIONS": '{"debug.strict": "true", "tremula.threads": 3}'}
    options = parse_options({"debug.strict": "false", "tremula.seed": "7"}, environ)
    assert options.flag("debug.strict")
    assert (options.whole("tremula.threads"), options.whole("tremula.seed")) == (3, 7)


def test_the_environment_is_read_by_default(monkeypatch):
    """Without an explicit environment the process's own is used."""
    monkeypatch.setenv("POPLAR_RUNTIME_OPTIONS", '{"target.hostSyncTimeout": "60"}')
    assert parse_options().values["target.hostSyncTimeout"] == 60


def test_unknown_options_suggest_the_nearest():
    """An unknown option is named, with the user's line and the nearest known name."""
    text = refused({"debug.strikt": "true"})
    assert text.startswith("Unrecognised option 'debug.strikt'\n")
    assert "test_options.py:" in text
    assert "did you mean 'debug.strict'" in text


def test_former_names_are_told_their_new_name():
    """A name Poplar once had is refused with the name it has now."""
    assert refused({"target.workerStackSizeInBytes": "512"}).startswith(
        "Unrecognised option 'target.workerStackSizeInBytes'\n"
    )
    assert refused({"target.workerStackSizeInBytes": "512"}).endswith(
        "try: it is now called 'debug.workerStackSizeInBytes'"
    )


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("debug.strict", "yes", '"true" or "false"; got \'yes\''),
        ("debug.strict", 1, '"true" or "false"; got 1'),
        ("tremula.threads", "-1", "a whole number, decimal or 0x-hex, at least 0; got '-1'"),
        ("tremula.threads", "1.5", "a whole number, decimal or 0x-hex, at least 0; got '1.5'"),
        ("tremula.threads", "0xno", "a whole number, decimal or 0x-hex, at least 0; got '0xno'"),
        ("target.hostSyncTimeout", "inf", "a number, decimal or 0x-hex, at least 0; got 'inf'"),
        ("tremula.cache", ["a"], "text; got ['a']"),
        ("tremula.cache", None, "text; got None"),
        (
            "exchange.streamBufferOverlap",
            "all",
            'one of "any", "none", "hostRearrangeOnly"; got \'all\'',
        ),
    ],
)
def test_bad_values_are_told_the_expected_form(name, value, form):
    """A bad value is refused with the form expected, the value got and what the option does."""
    text = refused({name: value})
    assert text.startswith(f"option '{name}' must be {form}.")
    assert OPTIONS[name].about in text


def test_mistakes_in_the_environment_name_the_variable():
    """An error in the environment says which variable it is in."""
    variable = "POPLAR_ENGINE_OPTIONS"
    assert "'debug.x' in POPLAR_ENGINE_OPTIONS" in refused({}, {variable: '{"debug.x": "1"}'})
    assert "option 'debug.strict' in POPLAR_ENGINE_OPTIONS must be" in refused(
        {}, {variable: '{"debug.strict": []}'}
    )
    assert "POPLAR_ENGINE_OPTIONS is not valid JSON" in refused({}, {variable: "{debug"})
    assert "must hold a JSON object, got list: [1]" in refused({}, {variable: "[1]"})
    assert parse_options({}, {variable: " "}).names_set == ()


def test_options_without_effect_are_known():
    """Options that are accepted but change nothing can be listed."""
    options = parse_options({"debug.strict": "true", "debug.outputAllSymbols": "true"}, {})
    assert options.without_effect() == ("debug.outputAllSymbols",)


def test_a_wrong_kind_is_our_own_mistake():
    """Asking an option for a kind it has not fails at once."""
    options = parse_options({}, {})
    for ask, name in (
        (options.flag, "tremula.threads"),
        (options.whole, "debug.strict"),
        (options.text, "tremula.threads"),
    ):
        with pytest.raises(AssertionError, match=f"option {name} is no"):
            ask(name)


def value_of(spec):
    """A strategy of good values of an option."""
    if spec.choices:
        return st.sampled_from(spec.choices)
    return {
        OptionKind.BOOL: st.booleans(),
        OptionKind.INT: st.integers(0, 2**40),
        OptionKind.NUMBER: st.floats(0, 1e9),
        OptionKind.TEXT: st.text(max_size=8),
    }[spec.kind]


@settings(max_examples=25)
@given(st.fixed_dictionaries({}, optional={n: value_of(s) for n, s in OPTIONS.items()}))
def test_options_survive_as_text(mapping):
    """Any options, written as text and read again, are the same options."""
    options = parse_options(mapping, {})
    assert {name: options.values[name] for name in mapping} == mapping
    assert parse_options(options.to_dict(), {}) == options


def test_the_page_is_up_to_date(repository):
    """docs/options.md is what the table says; `make docs` renews it."""
    page = (repository / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == options_markdown()
