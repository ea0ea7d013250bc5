"""Dithering of one convolution: it begins at another tile, its gradients too; results are equal."""

import numpy as np
import pytest
import torch
from torch import nn

import popart
import poptorch
import popxl
from popxl import ops
from tests.frontends.popart.sessions.models import flow, options, ran
from tests.frontends.poptorch.models import quiet

N_TILES = 32
GENERATOR = np.random.default_rng(3)
IMAGE, FIRST, SECOND = (
    GENERATOR.standard_normal(shape).astype(np.float32)
    for shape in ((1, 2, 6, 6), (5, 2, 3, 3), (4, 5, 1, 1))
)
SESSION_ON = {"convolutionOptions": {"enableConvDithering": "true"}}
# What the session says, what the second convolution says, and which of them then dither.
CASES = [
    ({}, 1, [False, True]),
    (SESSION_ON, None, [True, True]),
    (SESSION_ON, 0, [True, False]),
    ({"convolutionOptions": {"enableConvDithering": "1"}}, None, [True, True]),
]


def device():
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": N_TILES})


def tiles_of(executable):
    """The tiles of the vertices of each step that multiplies, in the order of the program."""
    steps = [s for s in executable.steps if s.name.endswith("Convolve")]
    tables = [executable.compute_sets[step.compute_set].tables for step in steps]
    return [np.concatenate([table.tile for table in of]).tolist() for of in tables]


def popart_builder(second):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", IMAGE.shape, "x")
    weights = [builder.addInitializedInputTensor(w) for w in (FIRST, SECOND)]
    y = builder.aiOnnx.tanh([builder.aiOnnx.conv([x, weights[0]])])
    z = str(builder.aiOnnx.conv([y, weights[1]]))
    if second is not None:
        builder.setEnableConvDithering(z, second)
    return builder, z


def of_popart(session, second):
    builder, z = popart_builder(second)
    running, result = ran(builder, {"x": IMAGE}, [z], options(**session), device())
    return running._program.program.tiles.program().executable, [result[z]]


def popart_in_training(session, second):
    builder, z = popart_builder(second)
    loss = str(builder.aiGraphcore.l1loss([z], 0.1))
    anchors = {z: ("All",)}
    running = popart.TrainingSession(
        builder.getModelProto(), flow(1, anchors), loss, popart.ConstSGD(0.1), device(),
        userOptions=options(**session),
    )  # fmt: skip
    running.prepareDevice()
    running.weightsFromHost()
    result = running.initAnchorArrays()
    running.run(popart.PyStepIO({"x": IMAGE}, result))
    return running._program.program.tiles.program().executable, [result[z].copy()]


def of_popxl(session, second):
    ir = popxl.Ir()
    for name, value in session.items():
        setattr(ir.session_options, name, value)
    chosen = None if second is None else [second]
    with ir.main_graph:
        x, *weights = (popxl.variable(v) for v in (IMAGE, FIRST, SECOND))

        def both(x, first, second):
            return ops.conv(ops.tanh(ops.conv(x, first)), second, enable_conv_dithering=chosen)

        graph = ir.create_graph(both, x, *weights)
        info = ops.call_with_info(graph, x, *weights)
        gradient = popxl.transforms.autodiff(graph)
        seed = popxl.constant(np.ones((1, 4, 4, 4), np.float32))
        results = [
            *info.outputs, *ops.call(gradient.graph, seed, inputs_dict=gradient.inputs_dict(info))
        ]  # fmt: skip
        streams = [popxl.d2h_stream(t.shape, t.dtype) for t in results]
        for stream, t in zip(streams, results, strict=True):
            ops.host_store(stream, t)
    with popxl.Session(ir, device()) as running:
        arrays = running.run()
        return running.report().executable, [arrays[stream] for stream in streams]


@pytest.mark.parametrize("make", [of_popart, popart_in_training, of_popxl])
def test_a_convolution_says_for_itself_where_it_begins(make):
    """Its own word counts before the session's, and for the products of its gradients."""
    executable, expected = make({}, None)
    plain = tiles_of(executable)
    for session, second, dithering in CASES:
        executable, results = make(session, second)
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        moved = [a != b for a, b in zip(tiles_of(executable), plain, strict=True)]
        assert moved == [dithering[i] for i in _convolutions_of(make, plain)]


def _convolutions_of(make, tiles):
    """Which convolution each product is of: both forwards, then gradients, the second's first."""
    n_gradients = len(tiles) - 2
    assert bool(n_gradients) == (make is not of_popart)
    own = n_gradients // 2
    return [0, 1] + [1] * (n_gradients - own) + [0] * own


class Two(nn.Module):
    """Two convolutions, of which a group has the second."""

    def __init__(self, group):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 5, 3), nn.Conv2d(5, 4, 1)
        self.group = group

    def forward(self, x):
        y = self.first(x).tanh()
        with self.group:
            y = self.second(y)
        return poptorch.identity_loss(y.sum(), "none")


def test_a_group_of_poptorch_says_where_its_convolutions_begin():
    """MultiConv.enableConvDithering counts forwards and backwards."""
    result = []
    for dithers in (False, True):
        torch.manual_seed(0)
        model = Two(poptorch.MultiConv().enableConvDithering(dithers))
        training = poptorch.trainingModel(model, quiet(), torch.optim.SGD(model.parameters(), 0.1))
        loss = training(torch.tensor(IMAGE))
        result.append((tiles_of(training.tile_program().executable), loss))
    (plain, loss), (tiles, same) = result
    torch.testing.assert_close(loss, same, rtol=0, atol=0)
    moved = [a != b for a, b in zip(tiles, plain, strict=True)]
    assert moved[:2] == [False, True]
    assert moved[2:].count(True) == 2, "the gradients of input and of weights"
