"""Programs of one operation, run."""

from collections.abc import Sequence

import numpy as np
import torch

import popxl
from popxl import ops
from tests.frontends.popxl.samples import Sample


def run(ir: popxl.Ir, tensors: Sequence[popxl.Tensor], device: object = "cpu") -> list[np.ndarray]:
    """The values of tensors of the main graph."""
    streams = []
    with ir.main_graph:
        for t in tensors:
            stream = popxl.d2h_stream(t.shape, t.dtype)
            ops.host_store(stream, t)
            streams.append(stream)
    with popxl.Session(ir, device) as session:
        result = session.run()
    return [result[stream] for stream in streams]


def program_of(sample: Sample) -> tuple[popxl.Ir, list[popxl.Tensor], int]:
    """A sample as a graph that is called, then its gradient's; how many tensors are results."""
    ir = popxl.Ir()
    with ir.main_graph:
        inputs = [popxl.variable(array) for array in sample.arrays]

        def body(*ts):
            result = sample.build(*ts)
            return result if isinstance(result, list | tuple) else [result]

        graph = ir.create_graph(body, *[t.spec for t in inputs])
        info = ops.call_with_info(graph, *inputs)
        outputs = [info.outputs[i] for i in range(len(graph.outputs))]
        tensors = list(outputs)
        if sample.differentiable:
            given = [t for t in graph.outputs if t.dtype.is_float]
            required = [graph.inputs[i] for i in sample.differentiable]
            grad = popxl.transforms.autodiff(graph, given, required)
            seeds = [popxl.constant(seed_of(t.shape), t.dtype) for t in given]
            tensors += ops.call(grad.graph, *seeds, inputs_dict=grad.inputs_dict(info))
    return ir, tensors, len(outputs)


def seed_of(shape: tuple[int, ...]) -> np.ndarray:
    """A gradient by a result: not all ones, so that mixed-up elements show."""
    n = int(np.prod(shape))
    return np.cos(np.arange(n, dtype=np.float32)).reshape(shape)


def expected_of(sample: Sample) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results and gradients by PyTorch."""
    operands = [torch.from_numpy(np.array(array)) for array in sample.arrays]
    for i in sample.differentiable:
        operands[i].requires_grad_()
    result = sample.reference(*operands)
    results = list(result) if isinstance(result, list | tuple) else [result]
    grads: list[np.ndarray] = []
    if sample.differentiable:
        chosen = [r for r in results if r.requires_grad]
        by = [operands[i] for i in sample.differentiable]
        seeds = [torch.from_numpy(seed_of(tuple(r.shape))) for r in chosen]
        made = (
            torch.autograd.grad(chosen, by, seeds, allow_unused=True)
            if chosen
            else [None] * len(by)
        )
        grads = [
            np.zeros(x.shape, np.float32) if g is None else g.numpy()
            for g, x in zip(made, by, strict=True)
        ]
    return [r.detach().numpy() for r in results], grads


def compare(sample: Sample, device: object = "cpu", tolerance: float = 2e-5) -> None:
    ir, tensors, n = program_of(sample)
    result = run(ir, tensors, device)
    results, grads = expected_of(sample)
    for got, want in zip(result[:n], results, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, tolerance, tolerance)
    for got, want in zip(result[n:], grads, strict=True):
        np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg="gradient")
