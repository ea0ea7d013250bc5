"""Programs on tiles: every vertex computed, against PyTorch and the interpreter."""

import numpy as np
import pytest

import popart
import popxl
from popxl import ops
from tests.frontends.popxl.runs import compare, run
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
    """Every operation gives on tiles what it gives on the host."""
    compare(sample, small_chip(), 2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["ipu2", "ipu21"])
def test_products_of_8_bit_floats(version):
    """A scale that the program computes is part of the product, on 8-bit units and without."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape).astype(np.float32) for shape in ((5, 40), (40, 6))]
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = (popxl.variable(x, popxl.float8_143, log2_scale=4) for x in values)
        out = ops.matmul_pow2scaled(a, b, ops.add(popxl.variable(-5), popxl.constant(-3)))
    options = {"numIPUs": 1, "tilesPerIPU": 4, "ipuVersion": version}
    (got,) = run(ir, [out], popart.DeviceManager().createIpuModelDevice(options))
    there, back = (getattr(popxl.fp8_utils, f"host_pow2scale_cast_{w}_fp8") for w in ("to", "from"))
    numbers = [back(there(x, popxl.float8_143, 4), popxl.float32, -4) for x in values]
    np.testing.assert_allclose(got, numbers[0] @ numbers[1], rtol=2e-3, atol=2e-3)


def test_a_graph_called_from_several_places_is_one_function():
    """Four calls of one graph, and of its gradient, are calls of two functions on tiles."""
    result = []
    for device in ("cpu", small_chip()):
        ir = popxl.Ir()
        with ir.main_graph:
            x = popxl.variable(np.full((2, 4), 0.3, np.float32))
            count = popxl.variable(0.0)

            def layer(t, count: popxl.TensorByRef):
                ops.add_(count, 1.0)
                return ops.tanh(t * 1.5)

            def pure(t):
                return ops.exp(t * -0.5)

            counted, plain = ir.create_graph(layer, x, count), ir.create_graph(pure, x)
            grad = popxl.transforms.autodiff(plain)
            t, calls = x, []
            for _ in range(2):
                (t,) = ops.call(counted, t, count)
                calls.append(ops.call_with_info(plain, t))
                t = calls[-1].outputs[0]
            for call in reversed(calls):
                (t,) = ops.call(grad.graph, t, inputs_dict=grad.inputs_dict(call))
            out = popxl.d2h_stream(t.shape, t.dtype)
            ops.host_store(out, t)
        with popxl.Session(ir, device) as session:
            result.append((session.run()[out], session.get_tensor_data(count)))
    compiled = session._compiled.program.step.graph
    keys = [node.args[1] for node in compiled.nodes if "tremula.call" in str(node.target)]
    assert (len(keys), len(set(keys))) == (6, 3)
    for host, tiles in zip(*result, strict=True):
        np.testing.assert_allclose(host, tiles, rtol=1e-5)
    assert result[1][1] == 2


def test_printing(capfd):
    """A tensor is printed each time it is computed, with its title, interpreted and compiled."""
    ir = popxl.Ir()
    with ir.main_graph:
        ops.print_tensor(popxl.variable([1.0, 2.0]), "twice")
    with popxl.Session(ir) as session:
        session.run()
        session.run()
    assert capfd.readouterr().err.count("twice") == 2
