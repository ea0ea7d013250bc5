"""poptorch.MultiConv: convolutions in a group, their options and errors."""

import pytest
import torch
from torch import nn

import poptorch
from tests.frontends.poptorch.models import (
    on_host,
    quiet,
)
from tremula.ir.nodes import schema_name
from tremula.ir.origin import ORIGIN

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class TwoConvolutions(nn.Module):
    def __init__(self, multi_conv):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(2, 3, 3) for _ in range(2))
        self.multi_conv = multi_conv

    def forward(self, x):
        with self.multi_conv:
            return sum(conv(x) for conv in self.convs)


IMAGE = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0))


def test_multi_conv():
    """Results are those of the convolutions; each knows its own settings."""
    group = poptorch.MultiConv().availableMemoryProportions([0.2, 0.4])
    group.partialsTypes(torch.half).enableConvDithering(True).perConvReservedTiles(60)
    group.planType(poptorch.MultiConvPlanType.Parallel).cycleBackOff(0.2)
    model = TwoConvolutions(group)
    with torch.no_grad():
        wanted = model(IMAGE)
    compiled = poptorch.inferenceModel(model, quiet())
    torch.testing.assert_close(compiled(IMAGE), wanted)
    origins = [
        n.meta[ORIGIN]
        for n in compiled.compiled_program().step.graph.nodes
        if schema_name(n) == "aten::convolution"
    ]
    assert [o.choices.available_memory for o in origins] == [0.2, 0.4]
    assert [o.choices.partials_type for o in origins] == ["half", "half"]
    assert [dict(o.attributes)["multi conv"] for o in origins] == ["0", "1"]


def test_partials_of_a_multi_conv(monkeypatch):
    """On tiles, convolutions have partial sums of the type that the group says."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    for type, name in ((torch.half, "<half,half"), (torch.float, "<half,float")):
        model = TwoConvolutions(poptorch.MultiConv().partialsTypes(type)).half()
        compiled = poptorch.inferenceModel(model, quiet())
        compiled(IMAGE.half())
        codelets = compiled.tile_program().executable.codelets
        partials = [c.spec.name for c in codelets if "ConvPartial" in c.spec.name]
        assert partials
        assert all(name in partial for partial in partials)


def nested(x):
    with poptorch.MultiConv(), poptorch.MultiConv():
        return x


def empty(x):
    with poptorch.MultiConv():
        return x + 1


@pytest.mark.slow
def test_multi_conv_errors():
    """Groups cannot be nested or empty, and settings are checked."""
    with pytest.raises(poptorch.Error, match=r"Nested poptorch\.MultiConv is not supported"):
        on_host(nested, X)
    with pytest.raises(poptorch.Error, match="Unexpected end_multi_conv"):
        on_host(empty, X)
    with pytest.raises(poptorch.Error, match="3 partials types, but 2 convolutions"):
        on_host(TwoConvolutions(poptorch.MultiConv().partialsTypes([torch.half] * 3)), IMAGE)
    with pytest.raises(ValueError, match="Invalid partials types"):
        poptorch.MultiConv().partialsTypes(torch.int32)
    with pytest.raises(AssertionError, match="Invalid plan type!"):
        poptorch.MultiConv().planType("parallel")
    with pytest.raises(ValueError, match=r"Invalid available memory proportions: 1\.2"):
        poptorch.MultiConv().availableMemoryProportions(1.2)
