"""Options of PopTorch as values and from text: dictionaries, the compiler's, JSON, files."""

import pytest
import torch

import poptorch
from poptorch import poptorch_core


def test_to_dict(opts):
    """All options become one dictionary of plain values, once an output mode is chosen."""
    with pytest.raises(AssertionError, match="no output mode was chosen"):
        opts.toDict()
    opts.outputMode(poptorch.OutputMode.All).freeze()
    values = opts.toDict()
    assert values["output_mode"] == 2
    assert type(values["output_mode"]) is int
    assert values["gradient_accumulation"] == 1
    assert values["execution_mode"] == 0
    assert values["num_distributed_processes"] == 1
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.checkIsFrozen()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("asdfasdf", True, "Unknown bool option asdfasdf"),
        ("enableOutlinin", True, "did you mean .*'enableOutlining'"),
        ("enableOutlining", 3, "Unknown uint64 option enableOutlining: its value must be .* bool"),
        ("dotChecks", torch.empty(1), "Unknown value type .* for option dotChecks"),
        ("thresholds", {"a": 1}, "Unknown map option thresholds"),
    ],
)
def test_unknown_compiler_options(opts, key, value, text):
    """Unknown names for the compiler are found when options are checked."""
    opts.outputMode(poptorch.OutputMode.All)._Popart.set(key, value)
    with pytest.raises(poptorch.Error, match=text):
        poptorch_core._validateOptions(opts.toDict())


def test_known_compiler_options(opts, capsys):
    """Names that public examples set are known, and logged as they are taken."""
    popart = opts.outputMode(poptorch.OutputMode.All)._Popart
    popart.set("hardwareInstrumentations", {0, 1}).set("dotChecks", ["FINAL", "ALL"])
    popart.setEngineOptions({"debug.allowOutOfMemory": "true"})
    popart.set("accumulateOuterFragmentSettings.excludedVirtualGraphs", ["0", "1"])
    popart.set("outlineThreshold", 10).set("timeLimitScheduler", 0.5)
    popart.set("enableExplicitIR", True).setPatterns({"PadSum": True}, 0)
    popart.set("automaticLossScalingSettings.gradientTensorTrackingMethod", 1)
    poptorch.setLogLevel("DEBUG")
    try:
        poptorch_core._validateOptions(opts.toDict())
    finally:
        poptorch.setLogLevel("WARN")
    log = capsys.readouterr().err
    for line in (
        "poptorch.Options added 0 to hardwareInstrumentations",
        "poptorch.Options added FINAL to dotChecks",
        "poptorch.Options set engineOptions[debug.allowOutOfMemory] to true",
        "poptorch.Options set enableExplicitIR to value true",
        "poptorch.Options set device_iterations to value 1",
        "poptorch.Options set execution_mode to value 0",
    ):
        assert line in log


def test_json(opts):
    """JSON calls setters: one value or a list of arguments, dots for groups, names of enums."""
    text = """{"deviceIterations": 2, "_Popart.set": ["saveInitializersToFile", "f.onnx"],
        "connectionType": "ConnectionType.OnDemand", "Training.gradientAccumulation": 4,
        "outputMode": ["OutputMode.EveryN", 3], "Precision.setPartialsType": "torch.half",
        "setAvailableMemoryProportion": {"IPU0": 0.5}}"""
    assert opts.from_json(text) is opts
    assert opts.device_iterations == 2
    assert opts.Popart.get("saveInitializersToFile") == "f.onnx"
    assert opts.connection_type is poptorch.ConnectionType.OnDemand
    assert opts.Training.gradient_accumulation == 4
    assert (opts.output_mode, opts.output_return_period) == (poptorch.OutputMode.EveryN, 3)
    assert opts.Popart.get("partialsTypeMatMuls") == "half"
    assert opts.available_memory_proportion == {0: 0.5}
    with pytest.raises(AttributeError, match=r"'deviceIteration'.*did you mean 'deviceIterations'"):
        opts.from_json('{"deviceIteration": 2}')


def test_environment(opts, monkeypatch):
    """The environment sets the cache folder and default options of new objects."""
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "cache")
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 2, "logDir": "d"}')
    fresh = poptorch.Options()
    assert fresh.Popart.get("cachePath") == "cache"
    opts.enableExecutableCaching("cache").deviceIterations(2).logDir("d")
    assert repr(fresh) == repr(opts)


def test_file(opts, tmp_path):
    """A file holds one setter call a line; comments and blanks are skipped."""
    path = tmp_path / "tmp.conf"
    path.write_text(
        "deviceIterations(1)\n"
        "setExecutionStrategy(poptorch.ShardedExecution(poptorch.Stage('a', 'b').ipu(2), ['c']))\n"
        "  replicationFactor(2)\n \n"
        "enableSyntheticData(True) # a comment\n"
        "# another\n"
        "Training.gradientAccumulation(4)\n"
        "Precision.setPartialsType(torch.float16)\n"
        '_Popart.set("hardwareInstrumentations", {0, 1})\n'
        'setAvailableMemoryProportion({"IPU0": 0.3, "IPU1": 0.2})\n'
        "outputMode(poptorch.OutputMode.EveryN, output_return_period=2)\n"
    )
    assert opts.loadFromFile(path) is opts
    assert opts.replication_factor == 2
    assert opts.execution_strategy.stage("b").chosen_ipu == 2
    assert opts.execution_strategy.stage("c").blocks == ["c"]
    assert opts.Popart.get("syntheticDataMode") == 2
    assert opts.Popart.get("hardwareInstrumentations") == {0, 1}
    assert opts.Training.gradient_accumulation == 4
    assert opts.output_return_period == 2


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("outputMode(poptorch.OutputMode.All", "SyntaxError at line 2 of o.conf: .*never closed"),
        ("deviceIterations", "SyntaxError at line 2 of o.conf: a line must be one call"),
        ("deviceIteration(1)", "AttributeError at line 2 of o.conf: .*did you mean"),
        ("outputMode(poptorch.OutputMod.All)", "AttributeError at line 2 of o.conf: .*OutputMode'"),
        ("logDir(open('x').read())", "NameError at line 2 of o.conf: name 'open' is not known"),
        ("logDir(torch.load('x'))", "AttributeError at line 2 of o.conf: 'load' cannot be used"),
        ("deviceIterations(1 + 1)", r"SyntaxError at line 2 of o.conf: only values .* not 1 \+ 1"),
        ("__class__(1)", "AttributeError at line 2 of o.conf: '__class__' is private"),
        ("deviceIterations('a')", "AssertionError at line 2 of o.conf: Unexpected type"),
    ],
)
def test_file_errors(opts, tmp_path, line, text):
    """A wrong line is named with its number and shown; a file cannot run other code."""
    path = tmp_path / "o.conf"
    path.write_text(f"# options\n{line}\n")
    with pytest.raises(poptorch.ConfigFileError, match=text) as caught:
        opts.loadFromFile(path)
    assert f"> options.{line}" in str(caught.value)
