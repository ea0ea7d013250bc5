"""Modules that take the place of a model's own: tables and products cut into parts."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import poptorch
from tremula.frontends.optimum.errors import IncompatibleIPUConfigError


def recomputation_checkpoint(module: nn.Module) -> torch.utils.hooks.RemovableHandle:
    """Keep what a module computes for the backward pass; what is between is computed again."""

    def keep(_module: nn.Module, _inputs: object, result: object) -> object:
        if isinstance(result, Tensor):
            return poptorch.recomputationCheckpoint(result)
        if isinstance(result, tuple):  # attention weights and biases may be None
            return tuple(
                poptorch.recomputationCheckpoint(x) if x is not None else x for x in result
            )
        return result

    return module.register_forward_hook(keep)


def outline_attribute(
    module: nn.Module, value: str
) -> tuple[torch.utils.hooks.RemovableHandle, torch.utils.hooks.RemovableHandle]:
    """Let a module share code only with modules of the same attribute."""
    context = poptorch.Attribute(__outline={"layer": value})

    def enter(_module: nn.Module, _inputs: object) -> None:
        context.__enter__()

    def leave(_module: nn.Module, _inputs: object, _result: object) -> None:
        context.__exit__(None, None, None)

    return module.register_forward_pre_hook(enter), module.register_forward_hook(leave)


def _row_cuts(n_rows: int, n_parts: int, what: str) -> list[int]:
    """Where a table is cut into parts as equal as can be."""
    if not 1 <= n_parts <= n_rows:
        raise IncompatibleIPUConfigError(
            f"{what} of {n_rows} rows cannot be cut in {n_parts} parts"
        )
    return [n_rows * i // n_parts for i in range(n_parts + 1)]


class SerializedEmbedding(nn.Module):
    """A table of words looked up part by part, so that no step needs all of it at once.

    The parts may lie on several IPUs: `ipus[i]` is that of part i.
    """

    def __init__(
        self, embedding: nn.Embedding, serialization_factor: int, ipus: Sequence[int] | None = None
    ):
        super().__init__()
        self.serialization_factor = serialization_factor
        self.num_embeddings = embedding.num_embeddings
        self.embedding_dim = embedding.embedding_dim
        self.padding_idx = embedding.padding_idx
        self.ipus = None if ipus is None else tuple(ipus)
        self.cuts = _row_cuts(self.num_embeddings, serialization_factor, "an embedding")
        rows = embedding.weight.detach()
        self.split_embeddings = nn.ModuleList(
            nn.Embedding.from_pretrained(rows[a:b].clone(), freeze=False)
            for a, b in zip(self.cuts, self.cuts[1:], strict=False)
        )

    def forward(self, indices: Tensor) -> Tensor:
        total: Tensor | None = None
        for i, part in enumerate(self.split_embeddings):
            if self.ipus is not None:
                poptorch.Block.start(f"embedding part {i}", ipu_id=self.ipus[i])
            first, end = self.cuts[i], self.cuts[i + 1]
            is_here = (indices >= first) & (indices < end)
            result = part(torch.where(is_here, indices - first, 0))
            result = result * is_here.unsqueeze(-1).to(result.dtype)
            total = result if total is None else total + result
        assert total is not None
        return total

    def deserialize(self) -> nn.Embedding:
        """The whole table again."""
        parts: Any = self.split_embeddings
        rows = torch.cat([part.weight.detach() for part in parts])
        return nn.Embedding.from_pretrained(rows, freeze=False, padding_idx=self.padding_idx)


class SerializedLinear(nn.Linear):
    """A linear layer whose product is computed in parts, one after the other."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        factor: int,
        bias: bool = False,
        mode: poptorch.MatMulSerializationMode = poptorch.MatMulSerializationMode.OutputChannels,
    ):
        super().__init__(in_features, out_features, bias)
        self.factor, self.mode = factor, mode

    def forward(self, input: Tensor) -> Tensor:
        result = poptorch.serializedMatMul(input, self.weight.t(), self.mode, self.factor)
        return result if self.bias is None else result + self.bias

    @classmethod
    def from_model(
        cls,
        linear: nn.Linear,
        factor: int,
        mode: poptorch.MatMulSerializationMode = poptorch.MatMulSerializationMode.OutputChannels,
    ) -> "SerializedLinear":
        """A copy of the layer that shares its weights, with the product in parts."""
        sizes = {
            poptorch.MatMulSerializationMode.OutputChannels: linear.out_features,
            poptorch.MatMulSerializationMode.ReducingDim: linear.in_features,
        }
        if mode in sizes and sizes[mode] % factor:
            raise IncompatibleIPUConfigError(
                f"a product of {sizes[mode]} outputs cannot be cut into {factor} equal parts",
                hint="choose a projection_serialization_factor that divides it, "
                "or pad the vocabulary (model.resize_token_embeddings)",
            )
        made = cls(linear.in_features, linear.out_features, factor, linear.bias is not None, mode)
        made.weight, made.bias = linear.weight, linear.bias  # tied weights stay tied
        return made

    def deserialize(self) -> nn.Linear:
        """The layer that computes at once, with the same weights."""
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        linear.weight, linear.bias = self.weight, self.bias
        return linear


class SplitProjection(nn.Module):
    """A linear layer in parts of its inputs or outputs, each with separate weights.

    The parts may lie on several IPUs: `splits_per_ipu[i]` is the number of parts on IPU i.
    """

    def __init__(
        self,
        linear: nn.Linear,
        splits_per_ipu: Sequence[int],
        mode: poptorch.MatMulSerializationMode = poptorch.MatMulSerializationMode.OutputChannels,
    ):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.reduces = mode is poptorch.MatMulSerializationMode.ReducingDim
        self.ipus = tuple(ipu for ipu, n in enumerate(splits_per_ipu) for _ in range(n))
        size = self.in_features if self.reduces else self.out_features
        self.cuts = _row_cuts(size, len(self.ipus), "a projection")
        weight = linear.weight.detach()
        self.split_linear_layers = nn.ModuleList()
        for a, b in zip(self.cuts, self.cuts[1:], strict=False):
            part = weight[:, a:b] if self.reduces else weight[a:b]
            layer = nn.Linear(part.shape[1], part.shape[0], bias=False)
            layer.weight = nn.Parameter(part.clone())
            self.split_linear_layers.append(layer)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for i, layer in enumerate(self.split_linear_layers):
            poptorch.Block.start(f"projection part {i}", ipu_id=self.ipus[i])
            parts.append(layer(x[..., self.cuts[i] : self.cuts[i + 1]] if self.reduces else x))
        result = torch.stack(parts).sum(0) if self.reduces else torch.cat(parts, dim=-1)
        return result if self.bias is None else result + self.bias

    def deserialize(self) -> nn.Linear:
        """The whole layer again."""
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        layers: Any = self.split_linear_layers
        parts = [layer.weight.detach() for layer in layers]
        linear.weight = nn.Parameter(torch.cat(parts, dim=1 if self.reduces else 0))
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach().clone())
        return linear


class SharedEmbedding(nn.Module):
    """One table that an encoder and a decoder look up in the same step, where the table is."""

    def __init__(self, shared: nn.Module):
        super().__init__()
        self.shared = shared

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> tuple[Tensor, Tensor]:
        n_words = input_ids.shape[1]
        result = self.shared(torch.cat([input_ids, decoder_input_ids], dim=1))
        return result[:, :n_words], result[:, n_words:]


class OnehotGather(nn.Module):
    """Rows by position as a product with ones and zeros, whose gradient needs no scatter."""

    def forward(self, sequence: Tensor, positions: Tensor) -> Tensor:
        one_hot = nn.functional.one_hot(positions.long(), sequence.shape[1]).to(sequence.dtype)
        return one_hot @ sequence
