"""What an expression computes, and what training makes of its weights: PyTorch in float64."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tools.fuzz.case import Case, IllegalCase
from tools.fuzz.expressions.operations import evaluate, weight_shape

LEARNING_RATE = 0.05
# (bits of the mantissa, smallest exponent of a normal number, largest number)
FP8 = {"143": (3, -7, 240.0), "152": (2, -15, 57344.0)}


class TorchAlgebra:
    """The primitive operations on tensors of PyTorch."""

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def constant(self, number: float, like: Tensor) -> Tensor:
        return torch.tensor(number, dtype=like.dtype)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        return x - y

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def div(self, x: Tensor, y: Tensor) -> Tensor:
        return x / y

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.maximum(x, y)

    def unary(self, name: str, x: Tensor) -> Tensor:
        return getattr(torch, name)(x)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x.reshape(*shape)

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        return x.permute(*order)

    def reduce(self, name: str, x: Tensor, axis: int) -> Tensor:
        functions = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}
        return functions[name](x, dim=axis, keepdim=True)

    def softmax(self, x: Tensor, axis: int) -> Tensor:
        return torch.softmax(x, axis)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return torch.cat(list(parts), axis)

    def slice(self, x: Tensor, axis: int, begin: int, end: int) -> Tensor:
        return x.narrow(axis, begin, end - begin)

    def fp8_product(self, x: Tensor, w: Tensor, format: str, scale: int) -> Tensor:
        return fp8_rounded(x, format, scale) @ fp8_rounded(w, format, 0)


def fp8_rounded(x: Tensor, format: str, scale: int) -> Tensor:
    """The nearest 8-bit numbers of x · 2^scale, divided by 2^scale; too large ones are cut."""
    n_bits, least, largest = FP8[format]
    scaled = x.detach().double() * 2.0**scale
    exponent = torch.floor(torch.log2(scaled.abs().clamp_min(1e-300))).clamp_min(least)
    step = 2.0 ** (exponent - n_bits)
    return (torch.round(scaled / step) * step).clamp(-largest, largest).to(x.dtype) * 2.0**-scale


PLAIN = TorchAlgebra()


def evaluated_shapes(case: Case) -> list[tuple[int, ...]]:
    """Shapes of the sample and of every value, for two samples."""
    x, shapes = torch.zeros(2, *case["shape"]), [(2, *case["shape"])]
    for number in range(len(case["nodes"])):
        part = {**case, "nodes": case["nodes"][: number + 1]}
        weights = [torch.zeros(shape) for shape in weight_shapes(part, shapes)]
        shapes.append(tuple(evaluate(part, PLAIN, x, weights).shape))
    return shapes


def weight_shapes(case: Case, shapes: list[tuple[int, ...]] | None = None) -> list[tuple[int, ...]]:
    """The shape of each weight, in order."""
    shapes = evaluated_shapes(case) if shapes is None else shapes
    result = []
    for node in case["nodes"]:
        if any(not 0 <= at < len(shapes) for at in node["ins"]) or not node["ins"]:
            raise IllegalCase("values that exist")
        shape = weight_shape(node, shapes[node["ins"][0]])
        if shape is not None:
            result.append(shape)
    return result


def data_of(case: Case) -> tuple[np.ndarray, list[np.ndarray]]:
    """Samples of all steps and the first weights, rounded to the type they are computed in."""
    random = np.random.default_rng(case["seed"])
    n = case["batch"] * case["replicas"] * case["accumulation"]
    x = random.standard_normal((case["steps"], n, *case["shape"])).astype(np.float32)
    weights = [
        (random.standard_normal(shape) / math.sqrt(max(1, shape[0]))).astype(np.float32)
        for shape in weight_shapes(case)
    ]
    if case["half"]:
        x, weights = x.astype(np.float16), [w.astype(np.float16) for w in weights]
    return x, weights


def plain_results(case: Case, noise: float = 0.0, draw: int = 0) -> list[Tensor]:
    """Outputs of each step, then the weights; with noise, everything is off by that share."""
    data, first = data_of(case)
    x = torch.from_numpy(data).double()
    weights = [torch.from_numpy(w).double() for w in first]
    if noise:
        generator = torch.Generator().manual_seed(1 + draw)
        x = x * (1 + noise * torch.randn(x.shape, generator=generator, dtype=x.dtype))
        weights = [
            w * (1 + noise * torch.randn(w.shape, generator=generator, dtype=w.dtype))
            for w in weights
        ]
    weights = [w.requires_grad_(case["training"]) for w in weights]
    trained = case["training"] and bool(weights)
    optimiser = torch.optim.SGD(weights, LEARNING_RATE, case["momentum"]) if trained else None
    outputs = []
    for samples in x:
        out = evaluate(case, PLAIN, samples, weights)
        outputs.append(out.detach())
        if optimiser is not None:
            optimiser.zero_grad()
            out.square().mean().backward()
            optimiser.step()
    return [*outputs, *(w.detach() for w in weights)] if trained else outputs
