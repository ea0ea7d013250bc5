"""Unit-scaled layers: normal weights, and the factors where values are computed."""

import torch
from torch import Tensor, nn

from tremula.frontends.poptorch.ops.float8 import Float8Formats
from tremula.frontends.scaling import functional


class Linear(nn.Linear):
    """torch.nn.Linear with normal weights; `formats` multiplies 8-bit floats.

    The last layer before the loss says so: `is_last=True`.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *,
        formats: Float8Formats | None = None, is_last: bool = False, **more: object,
    ) -> None:  # fmt: skip
        self.formats, self.is_last = formats, is_last
        super().__init__(in_features, out_features, bias, **more)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(
            input, self.weight, self.bias, formats=self.formats, is_last=self.is_last
        )


class Embedding(nn.Embedding):
    """torch.nn.Embedding with normal weights."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(input, self.weight)


class LayerNorm(nn.LayerNorm):
    """torch.nn.LayerNorm, unit-scaled."""

    def forward(self, input: Tensor) -> Tensor:
        shape = list(self.normalized_shape)
        return functional.layer_norm(input, shape, self.weight, self.bias, self.eps)


class Dropout(nn.Dropout):
    """torch.nn.Dropout, unit-scaled."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout(input, self.p, self.training)


class GELU(nn.Module):
    """torch.nn.GELU, unit-scaled."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(input)


class Residual(nn.Module):
    """skip + branch(norm(skip)), with both weighed so that the sum has variance one."""

    def __init__(self, branch: nn.Module, tau: float = 0.5) -> None:
        super().__init__()
        self.branch, self.tau = branch, tau

    def forward(self, x: Tensor) -> Tensor:
        inner, skip = functional.residual_split(x, self.tau)
        return functional.residual_add(self.branch(inner), skip, self.tau)


class CausalSelfAttention(nn.Module):
    """Attention of every place to those before it, over [batch, length, channels]."""

    def __init__(self, width: int, n_heads: int, formats: Float8Formats | None = None) -> None:
        super().__init__()
        if width % n_heads:
            raise ValueError(f"{n_heads} heads do not divide {width} channels")
        self.n_heads = n_heads
        self.wanted = Linear(width, 3 * width, bias=False, formats=formats)
        self.mixed = Linear(width, width, bias=False, formats=formats)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.wanted(x).reshape(batch, length, 3, self.n_heads, width // self.n_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        result = functional.attention(query, key, value, is_causal=True)
        return self.mixed(result.transpose(1, 2).reshape(batch, length, width))


class CharacterModel(nn.Module):
    """A small transformer over characters, unit-scaled throughout; `formats` makes it 8-bit."""

    def __init__(
        self, n_characters: int, width: int = 64, n_layers: int = 2, n_heads: int = 4,
        length: int = 64, formats: Float8Formats | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.characters = Embedding(n_characters, width)
        self.places = Embedding(length, width)
        blocks = []
        for _ in range(n_layers):
            attention = CausalSelfAttention(width, n_heads, formats)
            feed_forward = nn.Sequential(
                Linear(width, 4 * width, formats=formats),
                GELU(),
                Linear(4 * width, width, formats=formats),
            )
            blocks += [
                Residual(nn.Sequential(LayerNorm(width), part))
                for part in (attention, feed_forward)
            ]
        self.blocks = nn.Sequential(*blocks)
        self.norm = LayerNorm(width)
        self.head = Linear(width, n_characters, is_last=True)  # in its own type, as is usual

    def forward(self, ids: Tensor, target: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        x = functional.residual_add(self.characters(ids), self.places(places))
        logits = self.head(self.norm(self.blocks(x)))
        return logits if target is None else (logits, functional.cross_entropy(logits, target))
