"""PopART's and PopXL's programs of two convolutions, of which the second says how it is planned."""

import numpy as np

import popart
import popxl
from popxl import ops
from tests.frontends.popart.sessions.models import flow, options, ran
from tremula.ir.origin import Choices

N_TILES = 32
GENERATOR = np.random.default_rng(3)


def arrays_of(type_, *shapes):
    """An image and weights of both convolutions."""
    return tuple(GENERATOR.standard_normal(shape).astype(type_) for shape in shapes)


SMALL = IMAGE, _, _ = arrays_of(np.float32, (1, 2, 6, 6), (5, 2, 3, 3), (4, 5, 1, 1))


def device():
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": N_TILES})


def _annotated(builder, y, weights, second: Choices):
    """A Conv node, with an annotation for each choice."""
    z = str(builder.aiOnnx.conv([y, weights]))
    if second.dithers is not None:
        builder.setEnableConvDithering(z, int(second.dithers))
    if second.available_memory is not None:
        builder.setAvailableMemoryProportion(z, second.available_memory)
    if second.partials_type is not None:
        builder.setPartialsType(z, second.partials_type)
    return z


def _multi(builder, y, weights, second: Choices):
    """A multi-convolution of the second alone, whose attributes are its choices."""
    choices = {
        "availableMemoryProportions": second.available_memory,
        "partialsTypes": second.partials_type,
        "enableConvDithering": second.dithers,
    }
    attributes = {
        name: [int(value) if isinstance(value, bool) else value]
        for name, value in choices.items()
        if value is not None
    }
    (z,) = builder.aiGraphcore.multiconv([[y, weights]], **attributes)
    return z


def _popart_builder(second, arrays, convolve):
    builder = popart.Builder()
    image, *weights = arrays
    x = builder.addInputTensor(popart.TensorInfo(image), "x")
    weights = [builder.addInitializedInputTensor(w) for w in weights]
    y = builder.aiOnnx.tanh([builder.aiOnnx.conv([x, weights[0]])])
    return builder, convolve(builder, y, weights[1], second)


def of_popart(session, second, arrays=SMALL, convolve=_annotated):
    builder, z = _popart_builder(second, arrays, convolve)
    running, result = ran(builder, {"x": arrays[0]}, [z], options(**session), device())
    return running._program.program.tiles.program().executable, [result[z]]


def multiconv_of_popart(session, second, arrays=SMALL):
    return of_popart(session, second, arrays, _multi)


def popart_in_training(session, second, arrays=SMALL, convolve=_annotated):
    builder, z = _popart_builder(second, arrays, convolve)
    loss = str(builder.aiGraphcore.l1loss([z], 0.1))
    anchors = {z: ("All",)}
    running = popart.TrainingSession(
        builder.getModelProto(), flow(1, anchors), loss, popart.ConstSGD(0.1), device(),
        userOptions=options(**session),
    )  # fmt: skip
    running.prepareDevice()
    running.weightsFromHost()
    result = running.initAnchorArrays()
    running.run(popart.PyStepIO({"x": arrays[0]}, result))
    return running._program.program.tiles.program().executable, [result[z].copy()]


def multiconv_in_training(session, second, arrays=SMALL):
    return popart_in_training(session, second, arrays, _multi)


def of_popxl(session, second, arrays=SMALL):
    ir = popxl.Ir()
    for name, value in session.items():
        setattr(ir.session_options, name, value)
    with ir.main_graph:
        x, *weights = (popxl.variable(v) for v in arrays)

        def both(x, first, weight):
            return _popxl_convolution(ops.tanh(ops.conv(x, first)), weight, second)

        graph = ir.create_graph(both, x, *weights)
        info = ops.call_with_info(graph, x, *weights)
        gradient = popxl.transforms.autodiff(graph)
        z = info.outputs[0]
        seed = popxl.constant(np.ones(z.shape), z.dtype)
        grads = ops.call(gradient.graph, seed, inputs_dict=gradient.inputs_dict(info))
        results = [*info.outputs, *grads]
        streams = [popxl.d2h_stream(t.shape, t.dtype) for t in results]
        for stream, t in zip(streams, results, strict=True):
            ops.host_store(stream, t)
    with popxl.Session(ir, device()) as running:
        arrays = running.run()
        return running.report().executable, [arrays[stream] for stream in streams]


def _popxl_convolution(y, weight, second: Choices):
    lists = (
        None if value is None else [value]
        for value in (second.available_memory, second.partials_type, second.dithers)
    )
    names = "available_memory_proportions", "partials_types", "enable_conv_dithering"
    return ops.conv(y, weight, **dict(zip(names, lists, strict=True)))
