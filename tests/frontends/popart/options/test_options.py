"""SessionOptions and Patterns: every option exists, wrong names are errors, effects are said."""

from pathlib import Path

import pytest

import popart
from tests.frontends.popart.options.values import other_value
from tremula.frontends.popart.options.options import NAMES
from tremula.frontends.popart.options.table import OPTIONS, session_options_markdown, set_option

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_by_name(name):
    """Each name of the table sets the field it names, of the kind it says, and nothing else."""
    options, row = popart.SessionOptions(), OPTIONS[name]
    set_option(options, name, other_value(row))
    changed = set(options.changed())
    if name == "enableExplicitIR":
        assert changed == {"useHostCopyOps", "enableExplicitMainLoops", "explicitRecomputation"}
    else:
        assert changed == {name.partition(".")[0]}
        value = options
        for part in name.split("."):
            value = getattr(value, part)
        assert value == other_value(row)


def test_the_page_is_up_to_date():
    """docs/session-options.md is what the table says; `make docs` renews it."""
    page = ROOT / "docs" / "session-options.md"
    assert page.read_text(encoding="utf-8") == session_options_markdown()


def test_unknown_names_and_choices():
    """A name or a choice that does not exist is an error that says what does."""
    options = popart.SessionOptions()
    with pytest.raises(popart.popart_exception, match="did you mean 'enableOutlining'"):
        set_option(options, "enableOutlinin", True)
    with pytest.raises(popart.popart_exception, match=r"one of VirtualGraphMode.Off, .* got 9"):
        options.virtualGraphMode = 9
    options.virtualGraphMode = 2
    assert options.virtualGraphMode is popart.VirtualGraphMode.Auto


def test_defaults_and_names():
    """Options have PopART's defaults; a misspelt one is an error that names the nearest."""
    options = popart.SessionOptions()
    assert options.accumulationFactor == 1
    assert options.enableOutlining is True
    assert options.virtualGraphMode == popart.VirtualGraphMode.Off
    assert options.weightTensorLocationSettings.minElementsForReplicatedTensorSharding == 8192
    with pytest.raises(AttributeError, match="did you mean 'enablePipelining'"):
        options.enablePiplining = True
    with pytest.raises(AttributeError, match="did you mean 'enablePipelining'"):
        options.enablePiplining  # noqa: B018
    with pytest.raises(popart.popart_exception, match="engineOptions is a dict"):
        options.engineOptions = 3
    assert repr(options) == "SessionOptions()"


def test_options_write_through():
    """Dicts and groups inside options are changed in place, for each object its own."""
    options, other = popart.SessionOptions(), popart.SessionOptions()
    options.engineOptions["debug.strict"] = "true"
    options.automaticLossScalingSettings.enabled = True
    options.enableExplicitIR(True)
    assert other.engineOptions == {}
    assert not other.automaticLossScalingSettings.enabled
    assert options.useHostCopyOps
    changed = {"engineOptions", "automaticLossScalingSettings", "useHostCopyOps",
               "enableExplicitMainLoops", "explicitRecomputation"}  # fmt: skip
    assert set(options.changed()) == changed


def test_effects():
    """Each option says what it changes, or that it changes nothing."""
    options = popart.SessionOptions()
    kinds = {options.effect_of(name).partition(":")[0] for name in NAMES}
    assert kinds == {
        "results",
        "the tile program",
        "the session",
        "none",
    }
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 4
    assert options.getGlobalReplicationFactor() == 4


def test_patterns():
    """Patterns come by level, list, name and attribute; unknown ones are errors."""
    assert popart.Patterns(popart.PatternsLevel.NoPatterns).enabled() == []
    minimal, usual = popart.Patterns(popart.PatternsLevel.Minimal), popart.Patterns()
    assert minimal.isPatternEnabled("MatMulOp")
    assert not minimal.isPatternEnabled("OpToIdentity")
    assert usual.OpToIdentity
    assert all(hasattr(popart.Patterns, name) for name in usual.enabled())
    assert not usual.isPatternEnabled("TiedGather")
    assert popart.Patterns(["SplitOp"]).enabled() == ["SplitOp"]
    usual.OpToIdentity = False
    assert not usual.isPatternEnabled("OpToIdentity")
    assert usual.enablePattern("TiedGather", True).TiedGather
    with pytest.raises(popart.popart_exception, match="Unknown pattern 'Inplace'"):
        usual.Inplace = False
    with pytest.raises(popart.popart_exception, match="did you mean 'SplitOp'"):
        popart.Patterns(["SplitOps"])
