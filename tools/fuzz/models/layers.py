"""Layers as data: each fits whatever shape comes in, so that any of them can be left out.

A case lists layers such as {"do": "linear", "n": 3}; `ModelOfLayers` makes a module of them.
"""

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.fuzz.case import Case, IllegalCase
from tools.fuzz.models.poptorch_layers import EightBitRows, SparseRows

MOST_ELEMENTS = 64  # of one sample, between layers


class Call(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    """Input plus a layer of it."""

    def __init__(self, n: int, kind: str):
        super().__init__()
        self.inner, self.kind = nn.Linear(n, n), kind

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.inner(x))
        return x + y if self.kind == "add" else x * y


class Attention(nn.Module):
    """One head of attention over the rows of a sample."""

    def __init__(self, n: int, kind: str):
        super().__init__()
        self.of = nn.Linear(n, 3 * n, bias=False)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.of(x).chunk(3, -1)
        if self.kind == "fused":
            return functional.scaled_dot_product_attention(q, k, v)
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        return weights @ v


class Recurrent(nn.Module):
    """The outputs of an LSTM or a GRU over the rows of a sample."""

    def __init__(self, n: int, kind: str):
        super().__init__()
        self.net = (nn.LSTM if kind == "lstm" else nn.GRU)(n, n, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[0]


class Table(nn.Module):
    """Rows of a table, chosen by the signs of features."""

    def __init__(self, n: int):
        super().__init__()
        self.rows = nn.Embedding(3, n)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.rows((x[..., 0].detach() > 0).long())[..., : x.shape[-1]]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": functional.gelu,
    "silu": functional.silu, "elu": functional.elu, "softplus": functional.softplus,
    "leaky_relu": functional.leaky_relu, "hardtanh": functional.hardtanh,
    "softsign": functional.softsign, "mish": functional.mish, "square": torch.square,
    "exp": lambda x: torch.exp(-x * x), "log": lambda x: torch.log(x * x + 1),
    "sqrt": lambda x: torch.sqrt(x * x + 1), "abs": torch.abs, "sin": torch.sin, "cos": torch.cos,
    "erf": torch.erf, "reciprocal": lambda x: 1 / (1 + x * x), "atan": torch.atan,
    "clamp": lambda x: x.clamp(-0.5, 1.0), "where": lambda x: torch.where(x > 0, x, 2 * x),
    "maximum": lambda x: torch.maximum(x, -x * 0.5), "pow": lambda x: (x * x + 0.5) ** 1.5,
    "rsqrt": lambda x: torch.rsqrt(x * x + 1), "logsigmoid": functional.logsigmoid,
    "hardswish": functional.hardswish, "sub": lambda x: 1 - x, "div": lambda x: x / 3,
}  # fmt: skip
# Of the last dimension, and others that keep the rank of a sample.
REARRANGED: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1), "log_softmax": lambda x: torch.log_softmax(x, -1),
    "flip": lambda x: x.flip(-1), "roll": lambda x: x.roll(1, -1),
    "cumsum": lambda x: x.cumsum(-1), "double": lambda x: torch.cat([x, -x], -1),
    "halve": lambda x: x[..., : max(1, x.shape[-1] // 2)],
    "every_second": lambda x: x[..., ::2], "pad": lambda x: functional.pad(x, (1, 0)),
    "normalize": lambda x: x / (x.square().mean(-1, keepdim=True) + 1).sqrt(),
    "sort": lambda x: x.sort(-1).values, "topk": lambda x: x.topk(max(1, x.shape[-1] // 2)).values,
    "centre": lambda x: x - x.mean(-1, keepdim=True),
    "amax": lambda x: x - x.amax(-1, keepdim=True),
    "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
    "var": lambda x: x * x.var(-1, keepdim=True, unbiased=False),
    "gather": lambda x: x[..., [0, -1]], "repeat": lambda x: x.repeat_interleave(2, -1),
    "einsum": lambda x: torch.einsum("b...i,b...j->b...i", x, x),
}  # fmt: skip


def make_layer(layer: Case, shape: tuple[int, ...]) -> nn.Module:
    """The layer for samples of a shape; an IllegalCase if it does not fit."""
    name, last = layer["do"], shape[-1] if shape else 0
    if name == "activation":
        return Call(ACTIVATIONS[layer["kind"]])
    if not shape:
        raise IllegalCase("a layer of a scalar")
    if name == "rearranged":
        return Call(REARRANGED[layer["kind"]])
    of_rows: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: nn.Linear(last, _size(layer["n"]), bias=layer.get("bias", True)),
        "layer_norm": lambda: nn.LayerNorm(last),
        "residual": lambda: Residual(last, layer["kind"]),
        "table": lambda: Table(last),
        "sparse": lambda: SparseRows(last, _size(layer["n"]), layer["density"], layer["block"]),
        "float8": lambda: EightBitRows(last, _size(layer["n"]), layer["scale"]),
        "fold": lambda: Call(
            lambda x: x.reshape(x.shape[0], *folded(tuple(x.shape[1:]), layer["n"]))
        ),
    }
    return of_rows[name]() if name in of_rows else _spatial_layer(layer, shape)


def _spatial_layer(layer: Case, shape: tuple[int, ...]) -> nn.Module:
    name = layer["do"]
    if name == "swap" and len(shape) > 1:
        return Call(lambda x: x.transpose(1, -1))
    if name == "sum" and len(shape) > 1:
        return Call(lambda x: x.sum(1) if layer["kind"] == "sum" else x.mean(1))
    if name in ("attention", "recurrent") and len(shape) == 2:
        return {"attention": Attention, "recurrent": Recurrent}[name](shape[-1], layer["kind"])
    if name == "conv" and len(shape) in (2, 3):
        kind = nn.Conv1d if len(shape) == 2 else nn.Conv2d
        kernel = min(layer["kernel"], *shape[1:])
        return kind(shape[0], _size(layer["n"]), max(1, kernel), padding=layer["padding"] % 2,
                    stride=max(1, layer["stride"]))  # fmt: skip
    if name == "group_norm" and len(shape) > 1:
        return nn.GroupNorm(2 if shape[0] % 2 == 0 else 1, shape[0])
    if name == "pool" and len(shape) in (2, 3) and min(shape[1:]) > 1:
        n = len(shape) - 1
        kinds = {"max": (nn.MaxPool1d, nn.MaxPool2d), "avg": (nn.AvgPool1d, nn.AvgPool2d)}
        return kinds[layer["kind"]][n - 1](2)
    raise IllegalCase(f"{name} of {shape}")


def _size(n: int) -> int:
    if n < 1:
        raise IllegalCase("a size")
    return n


def folded(shape: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The shape with its elements in rows of n, or flat where that cannot be."""
    count = 1
    for size in shape:
        count *= size
    return (count // n, n) if n > 0 and count % n == 0 and count > n else (count,)


def random_layer(random: Random, shape: tuple[int, ...]) -> Case:
    """A layer that fits a shape."""
    if not shape:
        return {"do": "activation", "kind": random.choice(list(ACTIVATIONS))}
    kinds = ["activation"] * 3 + ["rearranged"] * 2 + ["linear"] * 2
    kinds += ["layer_norm", "residual", "table", "fold"]
    if len(shape) == 2:
        kinds += ["attention", "swap", "sum", "conv", "group_norm"]
        kinds += ["recurrent"] if random.random() < 0.15 else []  # slow
    if len(shape) == 3:
        kinds += ["conv", "conv", "group_norm", "pool"]
    kinds += ["sparse", "float8"] if random.random() < 0.2 else []
    name = random.choice(kinds)
    options: dict[str, Callable[[], Case]] = {
        "activation": lambda: {"kind": random.choice(list(ACTIVATIONS))},
        "rearranged": lambda: {"kind": random.choice(list(REARRANGED))},
        "linear": lambda: {"n": random.randint(1, 6), "bias": random.random() < 0.8},
        "sparse": lambda: _random_sparse(random, shape[-1]),
        "float8": lambda: {"n": random.randint(1, 6), "scale": random.randint(-2, 2)},
        "residual": lambda: {"kind": random.choice(("add", "mul"))},
        "fold": lambda: {"n": random.choice((2, 3, 4))},
        "attention": lambda: {"kind": random.choice(("plain", "fused"))},
        "recurrent": lambda: {"kind": random.choice(("lstm", "gru"))},
        "sum": lambda: {"kind": random.choice(("sum", "mean"))},
        "pool": lambda: {"kind": random.choice(("max", "avg"))},
        "conv": lambda: {"n": random.randint(1, 4), "kernel": random.choice((1, 2, 3)),
                         "padding": random.randrange(2), "stride": random.choice((1, 1, 2))},
    }  # fmt: skip
    return {"do": name, **options.get(name, dict)()}


def _random_sparse(random: Random, last: int) -> Case:
    block = random.choice((1, 4)) if last % 4 == 0 else 1
    n, density = block * random.randint(1, 8 // block), random.choice((0.1, 0.4, 0.4, 1.0))
    return {"n": n, "density": density, "block": block}


class ModelOfLayers(nn.Module):
    """The module of a case: its layers in order, then a linear layer to `n_out` features."""

    def __init__(self, case: Case):
        super().__init__()
        torch.manual_seed(case["seed"])
        layers, x = [], torch.zeros(1, *case["shape"])  # norms reject what only a batch has
        for layer in case["layers"]:
            made = make_layer(layer, tuple(x.shape[1:]))
            try:
                x = made(x)
            except (RuntimeError, ValueError, IndexError) as why:
                raise IllegalCase(str(why)) from None
            if x[0].numel() > MOST_ELEMENTS or not x.numel():
                raise IllegalCase("a sample of a moderate size")
            layers.append(made)
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(x[0].numel(), case["n_out"])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x.reshape(x.shape[0], -1))
