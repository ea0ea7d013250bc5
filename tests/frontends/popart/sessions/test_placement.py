"""Chips and stages of nodes: annotated, found by cost, pipelined; what is computed again."""

import numpy as np
import onnx
import pytest

import popart
from tremula.frontends.popart.sessions.placement import place_nodes
from tremula.frontends.popart.sessions.recomputation import (
    checkpoints,
    intervals,
    longest_interval,
)

from .models import LABELS, N_SAMPLES, X, classifier, flow, options, ran, trained

MANUAL, AUTO = popart.VirtualGraphMode.Manual, popart.VirtualGraphMode.Auto


def graph_of(builder):
    return onnx.load_model_from_string(builder.getModelProto()).graph


def diamond():
    """A → C and B; C, B → D → E: each but D reads its own weight, all of the same size."""
    builder = popart.Builder()
    x, y = (builder.addInputTensor("FLOAT", [8], name) for name in "xy")

    def layer(name, *inputs):
        w = builder.addInitializedInputTensor(np.ones(8, np.float32), f"w{name}")
        return builder.aiOnnx.sum([*inputs, w], name)

    c, b = layer("C", layer("A", x)), layer("B", y)
    layer("E", builder.aiOnnx.add([c, b], "D"))
    return graph_of(builder)


@pytest.mark.parametrize(
    ("n_chips", "expected"),
    [(2, {"A": 0, "C": 0, "B": 1, "D": 1, "E": 1}), (4, {"A": 0, "C": 1, "B": 2, "D": 3, "E": 3})],
)
def test_automatic_virtual_graphs(n_chips, expected):
    """Chips get runs of about the same cost, cut where all paths of a run have met."""
    result = place_nodes(diamond(), options(virtualGraphMode=AUTO), n_chips, {})
    assert {key.removesuffix(":0"): place.chip for key, place in result.items()} == expected


def test_too_few_places_to_cut():
    """More chips than cuts are an error with PopART's words."""
    with pytest.raises(popart.popart_exception, match="Couldn't find enough splits"):
        place_nodes(diamond(), options(virtualGraphMode=AUTO), 9, {})


def test_annotated_chips_and_stages():
    """Nodes are where they are annotated, others with their operand; stages are chips or named."""
    graph = graph_of(classifier(4, chips=(0, 1)))
    result = place_nodes(graph, options(virtualGraphMode=MANUAL), 2, {})
    assert {key: place.chip for key, place in result.items()} == {
        "MatMul:0": 0, "hidden:0": 0, "scores:0": 1, "found:0": 1, "loss:0": 1
    }  # fmt: skip
    piped = options(virtualGraphMode=MANUAL, enablePipelining=True)
    stages = {place.stage for place in place_nodes(graph, piped, 2, {}).values()}
    assert stages == {0, 1}
    with pytest.raises(popart.popart_exception, match="virtual graph 1, but the device has 1"):
        place_nodes(graph, options(virtualGraphMode=MANUAL), 1, {})


def test_pipelines_that_cannot_be_filled():
    """Errors about pipelines begin as PopART's do."""
    device = popart.DeviceManager().acquireAvailableDevice(2)
    piped = {"virtualGraphMode": MANUAL, "enablePipelining": True}
    builder, sgd = classifier(2, chips=(0, 1)), popart.ConstSGD(0.1)
    accumulating = {"enableGradientAccumulation": True, "accumulationFactor": 2}
    with pytest.raises(popart.popart_exception, match=r"For pipelining, depth \(gradient acc"):
        trained(builder, flow(1, {}), sgd, options(**piped, **accumulating), device)
    with pytest.raises(popart.popart_exception, match=r"For pipelining, depth \(batchesPerStep\)"):
        ran(builder, {}, ["found:0"], options(**piped), device)
    with pytest.raises(popart.popart_exception, match="Pipelining requires more than 1 IPU"):
        ran(builder, {}, ["found:0"], options(enablePipelining=True), device)


def test_stages_that_do_not_fit():
    """A stage is on one chip, all nodes have one or none, and data flows forwards."""
    piped = options(virtualGraphMode=MANUAL, enablePipelining=True)
    builder = classifier(4, chips=(0, 1))
    builder.pipelineStage(["found:0"], 1)
    with pytest.raises(popart.popart_exception, match="'MatMul:0' has none"):
        place_nodes(graph_of(builder), piped, 2, {})
    builder.pipelineStage(["MatMul:0", "hidden:0", "scores:0", "loss:0"], 1)
    with pytest.raises(popart.popart_exception, match="a stage is on one"):
        place_nodes(graph_of(builder), piped, 2, {})
    builder.pipelineStage(["MatMul:0", "hidden:0"], 2)
    with pytest.raises(popart.popart_exception, match="made in the later stage 2"):
        place_nodes(graph_of(builder), piped, 2, {})


@pytest.mark.slow
def test_pipelines_on_tiles():
    """A pipeline over two chips with recomputation trains as one chip does."""
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 4})
    piped = options(
        virtualGraphMode=MANUAL,
        enablePipelining=True,
        enableGradientAccumulation=True,
        accumulationFactor=3,
        autoRecomputation=popart.RecomputationType.Pipeline,
    )
    plain = options(enableGradientAccumulation=True, accumulationFactor=3)
    sgd, n = popart.ConstSGD(0.1), N_SAMPLES // 3
    inputs = {"x": X, "labels": LABELS}
    *_, result = trained(classifier(n, chips=(0, 1)), flow(1, {}), sgd, piped, device, inputs)
    *_, expected = trained(classifier(n), flow(1, {}), sgd, plain, inputs=inputs)
    for id, value in expected.items():
        np.testing.assert_allclose(result[id], value, 1e-4, 1e-5)


def in_phases(n):
    builder = classifier(n)
    builder.executionPhase(["MatMul:0", "hidden:0"], 0)
    builder.executionPhase(["scores:0", "found:0", "loss:0"], 1)
    return builder


def phased(**chosen):
    result = options(virtualGraphMode=popart.VirtualGraphMode.ExecutionPhases, **chosen)
    result.executionPhaseSettings.phases = 2
    return result


def test_phases_of_nodes():
    """Phases are on the chips in turn; unknown ones, or reading from later, are errors."""
    graph = graph_of(in_phases(4))
    result = place_nodes(graph, phased(), 2, {})
    assert {(place.chip, place.phase) for place in result.values()} == {(0, 0), (1, 1)}
    assert {place.chip for place in place_nodes(graph, phased(), 1, {}).values()} == {0}
    builder = in_phases(4)
    builder.executionPhase(["found:0"], 2)
    with pytest.raises(popart.popart_exception, match="in execution phase 2, but"):
        place_nodes(graph_of(builder), phased(), 2, {})
    builder.executionPhase(["found:0"], 0)
    with pytest.raises(popart.popart_exception, match="made in the later phase 1"):
        place_nodes(graph_of(builder), phased(), 2, {})


@pytest.mark.slow
def test_phases_on_tiles():
    """Two phases with weights outside the chip train as one chip does, and take longer."""
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4})
    off_chip = popart.TensorLocationSettings(popart.TensorStorage.OffChip, 0, 0)
    opts = phased(weightTensorLocationSettings=off_chip, enableOutlining=False)
    opts.instrumentWithHardwareCycleCounter = True
    plain = options(instrumentWithHardwareCycleCounter=True)
    sgd, inputs = popart.ConstSGD(0.1), {"x": X, "labels": LABELS}
    session, _, result = trained(in_phases(N_SAMPLES), flow(1, {}), sgd, opts, device, inputs)
    other, _, expected = trained(classifier(N_SAMPLES), flow(1, {}), sgd, plain, device, inputs)
    for id, value in expected.items():
        np.testing.assert_allclose(result[id], value, 1e-4, 1e-5)
    assert session.getCycleCount() > other.getCycleCount()


def test_intervals_of_recomputation():
    """Intervals shrink by one; PopART's longest is somewhat shorter than a chain's best."""
    assert intervals(15, 5) == [(0, 5), (5, 9), (9, 12), (12, 14), (14, 15)]
    assert [longest_interval(n) for n in (15, 25, 32, 100)] == [3, 4, 5, 9]


def test_what_is_kept():
    """Annotated tensors are kept; automatic modes keep their own."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [4])
    for i in range(15):
        y = builder.aiOnnx.tanh([y], f"t{i}")
    kinds, graph = popart.RecomputationType, graph_of(builder)
    sizes = {f"t{i}:0": 16 for i in range(15)}
    assert checkpoints(graph, kinds.NoRecompute, sizes) == frozenset()
    stored = checkpoints(graph, kinds.Standard, sizes)
    assert stored == {f"t{i}:0" for i in (0, 3, 5, *range(6, 14))}
    assert checkpoints(graph, kinds.RecomputeAll, sizes) == {"t14:0"}
    builder.recomputeOutput(["t3:0"], popart.RecomputeType.Checkpoint)
    assert checkpoints(graph_of(builder), kinds.NoRecompute, sizes) == {"t3:0"}
    builder.recomputeOutput(["t5:0"], popart.RecomputeType.Recompute)
    assert "t5:0" not in checkpoints(graph_of(builder), kinds.NoRecompute, sizes)
