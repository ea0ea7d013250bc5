"""Inputs and outputs that are transferred while a model computes: structures and errors."""

import re

import pytest
import torch

import poptorch
from tests.frontends.poptorch.models import (
    on_host,
    quiet,
)

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))

OVERLAP = poptorch.OverlapMode.OverlapDeviceIterationLoop


def overlap_options(**leave_out):
    options = quiet().outputMode(poptorch.OutputMode.All)
    if "strategy" not in leave_out:
        options.setExecutionStrategy(poptorch.ShardedExecution())
    if "tiles" not in leave_out:
        options.TensorLocations.numIOTiles(32)
    return options


def test_overlap_keeps_structures():
    """Marked inputs and outputs come back in their containers, with their values."""

    def function(x, y):
        marked = poptorch.set_overlap_for_input((x, [y]), OVERLAP)
        return poptorch.set_overlap_for_output({"a": marked[0] + marked[1][0]}, OVERLAP)["a"]

    torch.testing.assert_close(on_host(function, X, X, options=overlap_options()), X + X)
    assert poptorch.set_overlap_for_input({"x": X}, OVERLAP)["x"] is X


def marked_in(x):
    return poptorch.set_overlap_for_input(x, OVERLAP)


def marked_out(x):
    return poptorch.set_overlap_for_output(x, OVERLAP)


def returned_twice(x):
    y = marked_out(x + 1)
    return y, [y]


def returned_beside(x):
    y = x + 1
    return y, (marked_out(y),)


def reused(x):
    y = x + 1
    marked = marked_out(y)
    return marked, marked + y


PIPELINED = (
    "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one"
    " IPU, please switch to poptorch.ShardedExecution."
)
NO_TILES = (
    "No IO tiles allocated. You must allocate at least 32 IO tiles using"
    " poptorch.Options().TensorLocations.numIOTiles."
)
NOT_ONLY = (
    "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the"
    " case for input 0 to the model."
)
NO_INPUT = (
    "poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model."
)
TWICE = (
    "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please"
    " check all returned tensors including those nested in tuples/lists."
)
NO_OUTPUT = (
    "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."
)


@pytest.mark.parametrize(
    ("function", "options", "text"),
    [
        (lambda x: marked_in(x) + 1, {"strategy": True}, PIPELINED),
        (lambda x: marked_in(x) + 1, {"tiles": True}, NO_TILES),
        (lambda x: marked_in(x) + x, {}, NOT_ONLY),
        (lambda x: marked_in(x + 1) + 1, {}, NO_INPUT),
        (returned_twice, {}, TWICE),
        (returned_beside, {}, TWICE),
        (lambda x: marked_out(x + 1) + 1, {}, NO_OUTPUT),
    ],
)
@pytest.mark.parametrize("has_all_options", [True, False])
def test_overlap_errors(function, options, text, has_all_options):
    """Each thing that overlap does not allow has its text; options are checked last."""
    if not options and not has_all_options:
        options = {"strategy": True, "tiles": True}
    with pytest.raises(poptorch.Error, match=re.escape(text)):
        on_host(function, X, options=overlap_options(**options))


def test_a_marked_output_can_be_used_as_well():
    """What is marked for output may go into other operations, before and after the mark."""
    result = on_host(reused, X, options=overlap_options())
    torch.testing.assert_close(result, (X + 1, 2 * X + 2))


def test_overlap_needs_an_output_mode():
    """Only All and Sum return each micro-batch as it comes."""
    options = overlap_options().outputMode(poptorch.OutputMode.Final)
    with pytest.raises(poptorch.Error, match="Unsupported output mode for overlapped IO"):
        on_host(lambda x: marked_in(x) + 1, X, options=options)


def test_overlap_is_for_tensors():
    """Marks of other values are errors that say what is marked."""
    for mark, what in ((marked_in, "inputs"), (marked_out, "outputs")):
        with pytest.raises(poptorch.Error, match=rf"only set overlap for torch\.tensor {what}"):
            on_host(lambda x, mark=mark: (x, mark(1))[0], X, options=overlap_options())
