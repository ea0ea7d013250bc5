"""Reproducible randomness: random operations as integer arithmetic that any execution repeats.

Each number is a hash of seed, step, number of the draw and number of the element. The hash is of
32-bit products, shifts and exclusive ors, which every execution computes alike: host and tiles get
the same bits. docs/randomness.md says how good the numbers are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, prod
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.errors import UnsupportedOperations
from tremula.ir.nodes import is_random, overload_name, schema_name
from tremula.ir.origin import ORIGIN
from tremula.ir.passes.decompose import _Decomposer
from tremula.ir.recorder import Recorder
from tremula.ir.step import BUFFER, PARAMETER, CapturedStep, StepSlot

STATE_NAME = "rng"  # of the buffer that holds (seed, number of the step): int32[2]
_aten = torch.ops.aten
_STEP = 2.0**-24  # between uniform floats


def initial_state(seed: int, replica: int = 0) -> Tensor:
    """The buffer "rng" before the first step; replicas draw from separate streams."""
    return torch.tensor([_signed(seed + 0x9E3779B9 * replica), 0], dtype=torch.int32)


def reproducible(step: CapturedStep) -> CapturedStep:
    """The step with every random operation decomposed, and a buffer "rng" that counts its runs.

    A step that draws nothing stays as it is.
    """
    if not any(_is_drawn(node) for node in step.graph.nodes):
        return step
    return _Reproducer(step).run()


def _is_drawn(node: fx.Node) -> bool:
    return is_random(node) and schema_name(node) != "aten::empty"


def _signed(value: int) -> int:
    """The 32-bit pattern as a signed number, as int32 holds it."""
    return (value + 2**31) % 2**32 - 2**31


# -- the hash --------------------------------------------------------------------------------------


def _shifted(x: Tensor, n: int) -> Tensor:
    """A shift right that brings in zeros."""
    return torch.bitwise_and(torch.bitwise_right_shift(x, n), (1 << (32 - n)) - 1)


def _mixed(x: Tensor) -> Tensor:
    """Every bit of the result depends on every bit of x; one to one."""
    x = torch.bitwise_xor(x, _shifted(x, 16)) * _signed(0x7FEB352D)
    x = torch.bitwise_xor(x, _shifted(x, 15)) * _signed(0x846CA68B)
    return torch.bitwise_xor(x, _shifted(x, 16))


@dataclass(frozen=True)
class Keys:
    """What all draws of one step share: two scalars made of seed and step number."""

    first: Tensor
    second: Tensor

    @staticmethod
    def of(state: Tensor) -> "Keys":
        seed, step = state[0], state[1]
        first = _mixed(_mixed(seed) + step * _signed(0x9E3779B1))
        return Keys(first, _mixed(first + _signed(0x85EBCA6B)))


@dataclass
class Draws:
    """Numbers the draws of a step; each gives int32 bits for every element of a shape."""

    keys: Keys
    n_draws: int = 0

    def bits(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Two keys, one before and one within the mixing: no draw is a shifted copy of another."""
        self.n_draws += 1
        index = torch.arange(prod(shape), dtype=torch.int32, device=device)
        first = self.keys.first + _signed(self.n_draws * 0xC2B2AE35)
        second = torch.bitwise_xor(self.keys.second, _signed(self.n_draws * 0x27D4EB2F))
        x = index * _signed(0x9E3779B1) + first
        x = torch.bitwise_xor(x, _shifted(x, 16)) * _signed(0x21F0AAAD)
        return _mixed(torch.bitwise_xor(x, second)).reshape(shape)

    def fractions(self, like: Tensor) -> Tensor:
        """Whole numbers of [0, 2**24)."""
        return _shifted(self.bits(tuple(like.shape), like.device), 8)

    def uniform(self, like: Tensor) -> Tensor:
        """Floats of [0, 1), multiples of 2**-24."""
        return self.fractions(like).to(torch.float32) * _STEP

    def positive(self, like: Tensor) -> Tensor:
        """Floats of (0, 1]: their logarithm is finite."""
        return (self.fractions(like) + 1).to(torch.float32) * _STEP

    def normal(self, like: Tensor) -> Tensor:
        """By Box and Muller; at most 5.77 deviations from 0."""
        radius = torch.sqrt(torch.log(self.positive(like)) * -2.0)
        return radius * torch.cos(self.uniform(like) * (2 * pi))

    def exponential(self, like: Tensor) -> Tensor:
        return -torch.log(self.positive(like))

    def hits(self, like: Tensor, probability: float) -> Tensor:
        """Bools, true with a probability: whole numbers are compared, so all executions agree."""
        return self.fractions(like) < round(probability * 2**24)

    def below(self, like: Tensor, n: int) -> Tensor:
        """Whole numbers of [0, n); the bias is below n / 2**31."""
        return torch.remainder(_shifted(self.bits(tuple(like.shape), like.device), 1), n)


# -- what each operation draws ---------------------------------------------------------------------

_DRAWERS: dict[object, Callable] = {}


def _draws(*overloads: object) -> Callable[[Callable], Callable]:
    def enter(function: Callable) -> Callable:
        for overload in overloads:
            _DRAWERS[overload] = function
        return function

    return enter


def _narrow(values: Tensor, like: Tensor) -> Tensor:
    """Uniform floats in the type wanted. Halves keep 11 bits, so that none is rounded up to 1."""
    if like.dtype in (torch.float16, torch.bfloat16):
        n_bits = 11 if like.dtype is torch.float16 else 8
        values = torch.floor(values * 2.0**n_bits) * 2.0**-n_bits
    return values.to(like.dtype)


@_draws(_aten.rand.default, _aten.rand_like.default)
def _rand(draws: Draws, like: Tensor, *_args: object, **_options: object) -> Tensor:
    return _narrow(draws.uniform(like), like)


@_draws(_aten.uniform.default)
def _uniform(
    draws: Draws, like: Tensor, _x: Tensor, low: float = 0.0, high: float = 1.0, **_o: object
) -> Tensor:
    return (draws.uniform(like) * (high - low) + low).to(like.dtype)


@_draws(_aten.randn.default, _aten.randn_like.default)
def _randn(draws: Draws, like: Tensor, *_args: object, **_options: object) -> Tensor:
    return draws.normal(like).to(like.dtype)


@_draws(_aten.normal_functional.default)
def _normal_functional(
    draws: Draws, like: Tensor, _x: Tensor, mean: float = 0.0, deviation: float = 1.0, **_o: object
) -> Tensor:
    return (draws.normal(like) * deviation + mean).to(like.dtype)


@_draws(
    _aten.normal.float_float,
    _aten.normal.Tensor_float,
    _aten.normal.float_Tensor,
    _aten.normal.Tensor_Tensor,
)
def _normal(
    draws: Draws, like: Tensor, mean: Tensor | float, deviation: Tensor | float = 1.0,
    *_args: object, **_options: object,
) -> Tensor:  # fmt: skip
    return (draws.normal(like) * deviation + mean).to(like.dtype)


@_draws(_aten.exponential.default)
def _exponential(
    draws: Draws, like: Tensor, _x: Tensor, rate: float = 1.0, **_options: object
) -> Tensor:
    return (draws.exponential(like) * (1 / rate)).to(like.dtype)


@_draws(_aten.bernoulli.p)
def _bernoulli_p(
    draws: Draws, like: Tensor, _x: Tensor, probability: float = 0.5, **_options: object
) -> Tensor:
    return draws.hits(like, probability).to(like.dtype)


@_draws(_aten.bernoulli.default)
def _bernoulli(draws: Draws, like: Tensor, probabilities: Tensor, **_options: object) -> Tensor:
    return (draws.uniform(like) < probabilities.to(torch.float32)).to(like.dtype)


@_draws(_aten.native_dropout.default)
def _native_dropout(
    draws: Draws, like: tuple[Tensor, Tensor], x: Tensor, probability: float, train: bool | None
) -> tuple[Tensor, Tensor]:
    if train is False or probability == 0:
        return x.clone(), torch.ones(like[1].shape, dtype=torch.bool, device=x.device)
    mask = draws.hits(like[1], 1 - probability)
    scale = 1 / (1 - probability) if probability < 1 else 0.0
    return x * mask * scale, mask


@_draws(_aten.randint.default)
def _randint(draws: Draws, like: Tensor, high: int, *_args: object, **_options: object) -> Tensor:
    return draws.below(like, high).to(like.dtype)


@_draws(_aten.randint_like.default)
def _randint_like(draws: Draws, like: Tensor, _x: Tensor, high: int, **_options: object) -> Tensor:
    return draws.below(like, high).to(like.dtype)


@_draws(_aten.randint.low)
def _randint_low(
    draws: Draws, like: Tensor, low: int, high: int, *_args: object, **_options: object
) -> Tensor:
    return (draws.below(like, high - low) + low).to(like.dtype)


@_draws(_aten.randint_like.low_dtype)
def _randint_like_low(
    draws: Draws, like: Tensor, _x: Tensor, low: int, high: int, **_options: object
) -> Tensor:
    return (draws.below(like, high - low) + low).to(like.dtype)


@_draws(_aten.random.to)
def _random_to(draws: Draws, like: Tensor, _x: Tensor, high: int, **_options: object) -> Tensor:
    return draws.below(like, high).to(like.dtype)


@_draws(getattr(_aten.random, "from"))
def _random_from(
    draws: Draws, like: Tensor, _x: Tensor, low: int, high: int, **_options: object
) -> Tensor:
    return (draws.below(like, high - low) + low).to(like.dtype)


@_draws(_aten.randperm.default)
def _randperm(draws: Draws, like: Tensor, *_args: object, **_options: object) -> Tensor:
    """The order of as many different numbers: the hash has no number twice in one draw."""
    return torch.sort(draws.bits(tuple(like.shape), like.device))[1].to(like.dtype)


@_draws(_aten.multinomial.default)
def _multinomial(
    draws: Draws, like: Tensor, weights: Tensor, n: int, replacement: bool = False, **_o: object
) -> Tensor:
    """A race: the likelihood that weight / exponential is the largest is the weight's share."""
    weights = weights.to(torch.float32)
    if not replacement:
        return torch.topk(weights / draws.exponential(weights), n)[1].to(like.dtype)
    times = draws.exponential(weights.expand(n, *weights.shape))
    return torch.argmax(weights / times, -1).movedim(0, -1).to(like.dtype)


def _drawer(node: fx.Node) -> Callable:
    """The function that draws what a node draws."""
    result = _DRAWERS.get(node.target)
    if result is None:
        origin = node.meta.get(ORIGIN)
        raise UnsupportedOperations(
            f"{overload_name(node.target)} cannot be drawn reproducibly.",
            source=origin.source if origin is not None else None,
            hint="draw with rand, randn, randint, bernoulli or dropout, or leave the option off",
        )
    return result


def _device_of(node: fx.Node) -> torch.device:
    value = node.meta["val"]
    return (value[0] if isinstance(value, tuple | list) else value).device


# -- the pass --------------------------------------------------------------------------------------


class _Reproducer(_Decomposer):
    """Records the step again with random operations decomposed, and everything else as it is."""

    def __init__(self, step: CapturedStep):
        super().__init__(step)
        is_state = [slot.kind in (PARAMETER, BUFFER) for slot in step.inputs]
        self.n_before = max((index + 1 for index, state in enumerate(is_state) if state), default=0)
        self.n_seen = 0
        self.state: Tensor | None = None
        self.draws: Draws | None = None

    def run(self) -> CapturedStep:
        result = super().run()
        index = sum(slot.kind == BUFFER for slot in self.step.inputs)
        slot = StepSlot(BUFFER, index, STATE_NAME)
        inputs = (*self.step.inputs[: self.n_before], slot, *self.step.inputs[self.n_before :])
        return result.with_graph(self.graph, inputs=inputs, outputs=(*self.step.outputs, slot))

    def visit(self, node: fx.Node) -> None:
        if self.state is None and (node.op != "placeholder" or self.n_seen == self.n_before):
            self._add_state()
        if node.op == "placeholder":
            self.n_seen += 1
        if node.op == "output":
            self._give(node)
        else:
            super().visit(node)

    def _add_state(self) -> None:
        device = next(_device_of(n) for n in self.step.graph.nodes if _is_drawn(n))
        self.state = torch.empty(2, dtype=torch.int32, device=device)
        self._bind(self.graph.placeholder(STATE_NAME), self.state)

    def _give(self, node: fx.Node) -> None:
        """The state advances by one step: its second number grows by 1."""
        self.current = None
        assert self.state is not None, "a graph has a node before its output"
        with self:
            after = self.state + torch.arange(2, dtype=torch.int32, device=self.state.device)
        outputs: Any = node.args[0]
        results = [self.node_of(self.values[n]) for n in outputs]
        self.graph.output([*results, self.node_of(after)])

    def _call(self, node: fx.Node) -> None:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        if not _is_drawn(node):
            self._keep_call(node)
            return
        assert self.state is not None, "placeholders come first"
        with self:
            if self.draws is None:
                self.draws = Draws(Keys.of(self.state))
            self.values[node] = _drawer(node)(self.draws, node.meta["val"], *args, **kwargs)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        return Recorder.__torch_dispatch__(self, func, types, args, kwargs)
