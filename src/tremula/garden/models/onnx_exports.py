"""Well-known models as ONNX files, exported by PyTorch, with random weights."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tremula.garden.models.resnet import Bottleneck, ResNet, resnet50

OPSET = 17


@dataclass(frozen=True)
class Exported:
    """A file, the module it was exported from, and inputs by name."""

    path: Path
    module: nn.Module
    inputs: dict[str, Tensor]


class BertOutputs(nn.Module):
    """transformers' BERT as a function of tensors: words and mask in, states and summary out."""

    def __init__(self, **sizes: Any):  # noqa: ANN401 - of BertConfig
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(**sizes)
        config._attn_implementation = "eager"  # plain products, which the exporter knows
        self.bert = BertModel(config)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = (1.0 - mask[:, None, None, :].float()) * -10000.0
        segments = torch.zeros_like(words)
        result = self.bert(
            input_ids=words, attention_mask=hidden, token_type_ids=segments, return_dict=False
        )
        return result[0], result[1]


def export_resnet(path: Path, *, n_batch: int = 1, is_small: bool = False) -> Exported:
    """ResNet-50, or a net of the same kind that is small enough for a few tiles."""
    torch.manual_seed(0)
    model = ResNet(Bottleneck, (1, 1, 1, 1), 10, 8) if is_small else resnet50()
    size = 32 if is_small else 224
    images = torch.randn(n_batch, 3, size, size)
    return exported(model, {"images": images}, ["scores"], path)


def export_bert(
    path: Path, *, n_batch: int = 1, n_words: int = 128, is_small: bool = False
) -> Exported:
    """BERT-base, or a small one."""
    torch.manual_seed(0)
    small = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 64,
    }  # fmt: skip
    model = BertOutputs(**(small if is_small else {}))
    words = torch.randint(0, 100, (n_batch, 16 if is_small else n_words))
    inputs = {"words": words, "mask": torch.ones_like(words)}
    return exported(model, inputs, ["states", "summary"], path)


def exported(
    model: nn.Module, inputs: dict[str, Tensor], outputs: list[str], path: Path
) -> Exported:
    """Write a model as an ONNX file; inputs are by name, in the order that forward takes them."""
    model.eval()
    with warnings.catch_warnings():
        # The exporter that needs nothing but PyTorch warns that it is the older one.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, tuple(inputs.values()), path, dynamo=False, opset_version=OPSET,
            input_names=list(inputs), output_names=outputs,
        )  # fmt: skip
    return Exported(path, model, inputs)
