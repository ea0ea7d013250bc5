"""Histograms of exponents per tensor: which numbers a format would lose.

`watch` looks at a model while it runs: results of its modules, weights, and gradients of both. An
exponent is ⌊log₂|x|⌋.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from tremula.frontends.poptorch.executor.poplar_executor import PoplarExecutor

LOW, HIGH = -48, 48  # what is beyond counts as the end
KINDS = ("value", "weight", "gradient", "weight gradient")


@dataclass(frozen=True, slots=True)
class Format:
    """What matters of a number format: where it ends."""

    name: str
    least_exponent: int  # of its denormal numbers
    least_normal: int
    largest: float

    @property
    def largest_exponent(self) -> int:
        return int(np.floor(np.log2(self.largest)))


# Ends as base/floats.py and IEEE 754 have them.
FORMATS = {
    f.name: f
    for f in (
        Format("half", -24, -14, 65504.0),
        Format("F143", -10, -7, 240.0),
        Format("F152", -17, -15, 57344.0),
    )
}


@dataclass(slots=True)
class Exponents:
    """Counts of exponents of one tensor, over all times it was seen."""

    name: str
    kind: str
    counts: np.ndarray = field(default_factory=lambda: np.zeros(HIGH - LOW + 1, np.int64))
    n_zeros: int = 0
    n_bad: int = 0  # NaN, infinity
    sum_squares: float = 0.0

    @property
    def n(self) -> int:
        """Numbers that are not zero."""
        return int(self.counts.sum())

    @property
    def rms(self) -> float:
        total = self.n + self.n_zeros
        return float(np.sqrt(self.sum_squares / total)) if total else 0.0

    def add(self, tensor: Tensor) -> None:
        """Count the numbers of a tensor, too."""
        values = tensor.detach().float().reshape(-1)
        is_good = torch.isfinite(values)
        self.n_bad += int((~is_good).sum())
        values = values[is_good]
        values = values[values != 0] if values.numel() else values
        self.n_zeros += int(is_good.sum()) - values.numel()
        if not values.numel():
            return
        self.sum_squares += float(values.double().square().sum())
        exponent = (torch.frexp(values)[1] - 1).clamp(LOW, HIGH) - LOW
        self.counts += np.bincount(exponent.numpy(force=True), minlength=len(self.counts))

    def shares(self, form: Format) -> tuple[float, float]:
        """(underflow, overflow): shares of the numbers that become zero, and that do not fit.

        Numbers just below the least one round up to it.
        """
        exponents = np.arange(LOW, HIGH + 1)
        total = max(self.n + self.n_bad, 1)
        under = self.counts[exponents < form.least_exponent - 1].sum()
        over = self.counts[exponents > form.largest_exponent].sum() + self.n_bad
        return float(under) / total, float(over) / total


class Watched:
    """Tensors seen so far, in the order they were first seen."""

    def __init__(self) -> None:
        self.tensors: dict[tuple[str, str], Exponents] = {}
        self._names: dict[nn.Module, str] = {}
        self._depth = 0
        self._hooks: list[RemovableHandle] = []
        self._watched_parameters: set[int] = set()

    def add(self, name: str, kind: str, tensor: object) -> None:
        if not isinstance(tensor, Tensor) or isinstance(tensor, FakeTensor):
            return
        if not tensor.is_floating_point() or not tensor.numel():
            return
        entry = self.tensors.setdefault((name, kind), Exponents(name, kind))
        entry.add(tensor)

    # -- hooks

    def start(self) -> None:
        """Watch every module that runs from now on."""
        before = nn.modules.module.register_module_forward_pre_hook(self._enter)
        after = nn.modules.module.register_module_forward_hook(self._leave, always_call=True)
        self._hooks += [before, after]

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _enter(self, module: nn.Module, _inputs: object) -> None:
        if self._depth == 0:  # the module that is called from outside names the others
            root = type(module).__name__
            for path, inner in module.named_modules():
                self._names.setdefault(inner, path or root)
            self._watch_weights(module)
        self._depth += 1

    def _leave(self, module: nn.Module, _inputs: object, result: object) -> None:
        self._depth -= 1
        if isinstance(result, Tensor):
            name = self._names.get(module, type(module).__name__)
            self.add(name, "value", result)
            if result.requires_grad and not isinstance(result, FakeTensor):
                self._on_gradient(result, name, "gradient")

    def _watch_weights(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            if id(parameter) not in self._watched_parameters:
                self._watched_parameters.add(id(parameter))
                self.add(name, "weight", parameter)
                if parameter.requires_grad:
                    self._on_gradient(parameter, name, "weight gradient")

    def _on_gradient(self, tensor: Tensor, name: str, kind: str) -> None:
        def see(gradient: Tensor) -> None:
            self.add(name, kind, gradient)

        self._hooks.append(tensor.register_hook(see))


@contextmanager
def watch() -> Iterator[Watched]:
    """Watch all modules that run in a block; `Watched.tensors` are the histograms.

    What PopTorch compiles runs again, eagerly, with the inputs of its first call.
    """
    watched = Watched()
    plain_call, seen = PoplarExecutor.__call__, set()

    def call(self: PoplarExecutor, *args: object, **kwargs: object) -> object:
        if id(self) not in seen:
            seen.add(id(self))
            _run_eagerly(self, args, kwargs)
        return plain_call(self, *args, **kwargs)

    watched.start()
    PoplarExecutor.__call__ = call
    try:
        yield watched
    finally:
        PoplarExecutor.__call__ = plain_call
        watched.stop()


def _run_eagerly(executor: PoplarExecutor, args: tuple, kwargs: dict[str, object]) -> None:
    """The model and, in training, its gradients; weights, buffers and seeds stay as they are."""
    model = executor.model
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    gradients = {name: p.grad for name, p in model.named_parameters()}
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(executor.is_training):
        result = model(*args, **kwargs)
        if executor.is_training:
            _loss_of(result).backward()
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name]


def _loss_of(result: object) -> Tensor:
    """The last scalar among a training model's outputs; the sum of all outputs if there is none."""
    tensors = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
    scalars = [t for t in tensors if t.numel() == 1]
    return scalars[-1].sum() if scalars else sum((t.sum() for t in tensors), torch.zeros(()))
