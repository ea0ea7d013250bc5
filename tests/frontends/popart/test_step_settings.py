"""Session options as settings of a step: each option drives what its row says, for both APIs."""

import dataclasses
from collections.abc import Iterator

import pytest

import popart
import poptorch
from tests.frontends.popart.options.values import other_value
from tremula.frontends.popart.options.table import OPTIONS, set_option
from tremula.frontends.popart.sessions import settings as popart_settings
from tremula.frontends.popart.step_settings import repetition
from tremula.frontends.poptorch.executor import step_settings as poptorch_settings
from tremula.ir.locations import Location
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.settings import HostSettings

# What an option needs to have an effect: accumulation, replicas, a mean, several processes.
ENABLED = {
    "enableGradientAccumulation": True,
    "accumulationFactor": 2,
    "enableReplicatedGraphs": True,
    "replicatedGraphCount": 2,
    "accumulationAndReplicationReductionType": popart.ReductionType.Mean,
    "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running,
    "enableDistributedReplicatedGraphs": True,
    "globalReplicationFactor": 4,
    "enableEngineCaching": True,
}


def enabled_options() -> popart.SessionOptions:
    options = popart.SessionOptions()
    for name, value in ENABLED.items():
        setattr(options, name, value)
    return options


def of_popart(options: popart.SessionOptions) -> StepSettings:
    device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 4})
    return popart_settings.step_settings(options, device, repetition(options, 3), {}, 5)


def of_poptorch(options: poptorch.Options) -> StepSettings:
    return poptorch_settings.step_settings(options.randomSeed(5), HostSettings(), {})


def leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """The fields of settings, with dots; a location is one value."""
    if not dataclasses.is_dataclass(value) or isinstance(value, Location):
        yield name, value
        return
    for item in dataclasses.fields(value):
        dotted = f"{name}.{item.name}" if name else item.name
        yield from leaves(getattr(value, item.name), dotted)


def differing(a: StepSettings, b: StepSettings) -> set[str]:
    """Names of the fields in which two settings differ; callbacks do not count."""
    others = dict(leaves(b))
    return {name for name, v in leaves(a) if v != others[name]} - {"warn", "tiles.warn"}


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "enableExplicitIR"])
def test_each_option_drives_what_its_row_says(name, monkeypatch):
    """Changing one option of a session changes settings that its row names, and no others."""
    monkeypatch.delenv("POPART_CACHE_DIR", raising=False)
    row, changed = OPTIONS[name], enabled_options()
    default = ENABLED.get(name, row.default)
    set_option(changed, name, other_value(dataclasses.replace(row, default=default)))
    result = differing(of_popart(enabled_options()), of_popart(changed))
    assert result <= set(row.drives)
    assert bool(result) == bool(row.drives)


def test_io_tiles_are_modelled_if_there_are_any():
    """Tensors on I/O tiles are named as not modelled while no tiles are set aside for I/O."""
    options = popart.SessionOptions()
    location = popart.TensorLocation(popart.TensorStorage.OffChip, popart.TileSet.IO)
    options.weightTensorLocationSettings = popart.TensorLocationSettings(location)
    assert "numIOTiles" in of_popart(options).tiles.not_modelled[0]
    options.numIOTiles = 32
    assert not of_popart(options).tiles.not_modelled


BY_NAME = [
    name
    for name, row in OPTIONS.items()
    if row.is_set_by_name and row.drives and not row.drives[0].startswith("repetition")
]


@pytest.mark.parametrize("name", BY_NAME)
def test_poptorch_and_popart_agree(name):
    """An option set by name in PopTorch gives the same settings as PopART's attribute."""
    session, options = popart.SessionOptions(), poptorch.Options()
    is_cached = {"enableEngineCaching": True, "cachePath": "cache"}
    row = dataclasses.replace(OPTIONS[name], default=is_cached.get(name, OPTIONS[name].default))
    for key, value in {**is_cached, name: other_value(row)}.items():
        set_option(session, key, value)
        options.Popart.set(key, value)
    expected, result = dict(leaves(of_popart(session))), dict(leaves(of_poptorch(options)))
    assert [result[field] for field in row.drives] == [expected[field] for field in row.drives]


def test_poptorch_setters_and_popart_attributes_agree():
    """Accumulation, replicas, locations and I/O tiles mean the same in both APIs."""
    session = popart.SessionOptions()
    session.enableGradientAccumulation, session.accumulationFactor = True, 4
    session.enableReplicatedGraphs, session.replicatedGraphCount = True, 2
    session.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    running = popart.MeanReductionStrategy.Running
    session.meanAccumulationAndReplicationReductionStrategy = running
    session.numIOTiles = 32
    location = popart.TensorLocation(
        popart.TensorStorage.OffChip,
        popart.TileSet.IO,
        popart.TileSet.Compute,
        popart.ReplicatedTensorSharding.On,
    )
    session.weightTensorLocationSettings = popart.TensorLocationSettings(location, 5, 6)

    options = poptorch.Options().deviceIterations(3).replicationFactor(2)
    options.Training.gradientAccumulation(4)
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(running)
    where = poptorch.TensorLocationSettings().useOnChipStorage(False).useIOTilesToLoad(True)
    where.useReplicatedTensorSharding(True).minElementsForOffChip(5)
    options.TensorLocations.numIOTiles(32).setWeightLocation(
        where.minElementsForReplicatedTensorSharding(6)
    )
    assert of_poptorch(options).repetition == of_popart(session).repetition
    assert of_poptorch(options).tiles.lowering == of_popart(session).tiles.lowering


def test_processes_divide_means():
    """A mean over several processes is divided by the replicas of all of them."""
    options = poptorch.Options().replicationFactor(2)
    options.Distributed.configureProcessId(1, 3)
    result = of_poptorch(options).repetition
    assert (result.n_processes, result.gradient_scale) == (3, 1 / 6)


def test_io_tiles_by_name():
    """`numIOTiles` set by name counts, unless TensorLocations says otherwise."""
    options = poptorch.Options()
    options.Popart.set("numIOTiles", 40)
    assert of_poptorch(options).tiles.lowering.n_io_tiles == 40
    options.TensorLocations.numIOTiles(32)
    assert of_poptorch(options).tiles.lowering.n_io_tiles == 32


def test_dithering_reaches_the_lowering_of_convolutions():
    """PopTorch's setter stores it among the options of convolutions, which tiles read."""
    options = poptorch.Options()
    assert not of_poptorch(options).tiles.lowering.dithers_convolutions
    options.Training.setConvolutionDithering(True)
    assert of_poptorch(options).tiles.lowering.dithers_convolutions


@pytest.mark.parametrize(
    ("choice", "recomputes_stages", "recomputation"),
    [(None, True, None), (0, False, None), (1, True, "popart"), (2, True, "norms"),
     (3, True, None), (4, True, "everything")],
)  # fmt: skip
def test_recomputation_of_poptorch(choice, recomputes_stages, recomputation):
    """Stages of a pipeline are computed again unless a script says no; modes choose a pass."""
    options = poptorch.Options()
    if choice is not None:
        options.Popart.set("autoRecomputation", choice)
    tiles = of_poptorch(options).tiles
    assert (tiles.recomputes_stages, tiles.recomputation) == (recomputes_stages, recomputation)
