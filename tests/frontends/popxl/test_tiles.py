"""Programs on tiles: every vertex computed, against PyTorch and the interpreter."""

import pytest

import popart
from tests.frontends.popxl.runs import compare
from tests.frontends.popxl.samples import SAMPLES

SAMPLED = {"matmul", "layer_norm", "gather", "adam_updater", "slice_", "add_"}


def small_chip():
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 8})


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.name in SAMPLED], ids=lambda sample: sample.name
)
def test_against_pytorch(sample):
    """Results and gradients computed on tiles are PyTorch's."""
    compare(sample, small_chip(), 2e-4)


@pytest.mark.wide
@pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if s.name not in SAMPLED],
    ids=lambda sample: sample.name,
)
def test_every_operation(sample):
    """The same for every operation."""
    compare(sample, small_chip(), 2e-4)
