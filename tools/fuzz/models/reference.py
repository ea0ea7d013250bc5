"""What plain PyTorch computes in float64, and how far that moves when numbers are rounded."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.fuzz.case import Case
from tools.fuzz.conditioning import IN_HALF
from tools.fuzz.models.layers import ModelOfLayers

LEARNING_RATE = 0.05
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": functional.mse_loss,
    "l1": functional.smooth_l1_loss,
    "entropy": lambda out, target: functional.cross_entropy(out, target.argmax(-1)),
}


def optimiser_of(namespace: object, case: Case, parameters: object) -> torch.optim.Optimizer:
    """The optimiser of a case, from `torch.optim` or `poptorch.optim`."""
    name = case["optimiser"]
    if name in ("SGD", "momentum"):
        momentum = 0.9 if name == "momentum" else 0.0
        return namespace.SGD(parameters, lr=LEARNING_RATE, momentum=momentum)
    return getattr(namespace, name)(parameters, lr=LEARNING_RATE / 5)


def data_of(case: Case) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one call: rows for all micro-batches."""
    n = case["batch"] * case["iterations"] * case["accumulation"] * case["replicas"]
    generator = torch.Generator().manual_seed(case["seed"] + 1)
    x = torch.randn(n, *case["shape"], generator=generator)
    return x, torch.randn(n, case["n_out"], generator=generator)


def plain_results(case: Case, noise: float = 0.0, draw: int = 0) -> list[Tensor]:
    """Outputs of every call, then the weights; with noise, everything is off by that share."""
    model, (x, target) = ModelOfLayers(case), data_of(case)
    if case["half"]:
        model, x, target = model.half(), x.half(), target.half()
    if draw != IN_HALF:
        model, x, target = model.double(), x.double(), target.double()
    if noise and draw != IN_HALF:
        _shake(model, noise, draw)
        if draw:
            _shake_layers(model, noise)
        x = x * (1 + noise * torch.randn(x.shape, dtype=x.dtype))
    if not case["training"]:
        with torch.no_grad():
            return [model(x).double()] * case["calls"]
    optimiser = optimiser_of(torch.optim, case, model.parameters())
    outputs = []
    for _ in range(case["calls"]):
        rows = zip(x.chunk(case["iterations"]), target.chunk(case["iterations"]), strict=True)
        for each, wanted in rows:
            optimiser.zero_grad()
            out = model(each)
            LOSSES[case["loss"]](out, wanted).backward()
            _shake_gradients(model, noise if draw != IN_HALF else 0.0)
            outputs.append(out.detach().double())
            optimiser.step()
    return [*outputs, *(p.detach().double() for p in model.parameters())]


def _shake_gradients(model: nn.Module, noise: float) -> None:
    """Rounding leaves remainders of large terms, also where a gradient is zero: Adam sees them."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if not noise or not gradients:
        return
    scale = noise * max(float(gradient.abs().max()) for gradient in gradients)
    for gradient in gradients:
        gradient.add_(scale * torch.randn(gradient.shape, dtype=gradient.dtype))


def _shake_layers(model: ModelOfLayers, noise: float) -> None:
    """What a layer gives, and its gradient, are rounded, too."""

    def moved(gradient: Tensor) -> Tensor:
        scale = noise * gradient.abs().max()
        return gradient + scale * torch.randn(gradient.shape, dtype=gradient.dtype)

    def shake(_module: nn.Module, _inputs: object, out: Tensor) -> Tensor:
        if out.requires_grad:
            out.register_hook(moved)
        return out + noise * out.abs().max() * torch.randn(out.shape, dtype=out.dtype)

    for layer in (*model.layers, model.head):
        layer.register_forward_hook(shake)


def _shake(model: nn.Module, noise: float, draw: int) -> None:
    """Move the weights; noise of samples and gradients follows from the seed, too."""
    generator = torch.Generator().manual_seed(draw)
    torch.manual_seed(draw)
    with torch.no_grad():
        for parameter in model.parameters():
            random = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.mul_(1 + noise * random).add_(noise * 1e-2 * random)
