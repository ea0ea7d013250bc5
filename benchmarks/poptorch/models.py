"""The models of the PopTorch figures: each with its inputs and optimiser, as in a script."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from benchmarks.gpu_programs import is_rehearsal
from tremula.base.errors import RuntimeFailure
from tremula.demo.classifiers import WithLoss, mnist_cnn
from tremula.garden.models.resnet import resnet50


def cifar_cnn() -> nn.Module:
    """Four convolutions with batch norm on 32×32 colour images."""

    def block(n_in: int, n_out: int) -> list[nn.Module]:
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]

    return nn.Sequential(
        *block(3, 32), *block(32, 32), nn.MaxPool2d(2),
        *block(32, 64), *block(64, 64), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4096, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


class Sequences(nn.Module):
    """An LSTM over sequences of vectors; the last state is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.out = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        return self.out(states[:, -1])


class LanguageModel(nn.Module):
    """GPT-2 from transformers with random weights; returns its loss."""

    def __init__(self, n_layer: int, n_embd: int, n_head: int, n_vocabulary: int = 50257):
        super().__init__()
        transformers = transformers_module()
        config = transformers.GPT2Config(
            vocab_size=n_vocabulary, n_layer=n_layer, n_embd=n_embd, n_head=n_head
        )
        self.gpt = transformers.GPT2LMHeadModel(config)

    def forward(self, ids: Tensor) -> Tensor:
        return self.gpt(input_ids=ids, labels=ids).loss


class TextClassifier(nn.Module):
    """BERT from transformers with random weights, tiny if not told otherwise; returns its loss."""

    def __init__(self, n_layer: int = 2, width: int = 128, n_head: int = 2) -> None:
        super().__init__()
        transformers = transformers_module()
        config = transformers.BertConfig(
            num_hidden_layers=n_layer,
            hidden_size=width,
            num_attention_heads=n_head,
            intermediate_size=4 * width,
        )
        self.bert = transformers.BertForSequenceClassification(config)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return self.bert(input_ids=ids, labels=labels).loss


class LlamaModel(nn.Module):
    """Llama from transformers with 110 million random weights; returns its loss."""

    def __init__(self, n_layer: int = 12, width: int = 768, n_head: int = 12):
        super().__init__()
        transformers = transformers_module()
        config = transformers.LlamaConfig(
            vocab_size=32000,
            hidden_size=width,
            intermediate_size=width * 8 // 3,
            num_hidden_layers=n_layer,
            num_attention_heads=n_head,
            num_key_value_heads=n_head // 3,
            tie_word_embeddings=True,
            use_cache=False,
        )
        self.llama = transformers.LlamaForCausalLM(config)

    def forward(self, ids: Tensor) -> Tensor:
        return self.llama(input_ids=ids, labels=ids).loss


class ImageTransformer(nn.Module):
    """ViT from transformers with random weights; returns its loss."""

    def __init__(self, n_layer: int = 12, width: int = 768, n_head: int = 12):
        super().__init__()
        transformers = transformers_module()
        config = transformers.ViTConfig(
            num_hidden_layers=n_layer,
            hidden_size=width,
            num_attention_heads=n_head,
            intermediate_size=4 * width,
            num_labels=10,
        )
        self.vit = transformers.ViTForImageClassification(config)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        scores = self.vit(pixel_values=images).logits
        return nn.functional.cross_entropy(scores.float(), labels)


class ImageConvNet(nn.Module):
    """ConvNeXt from transformers with random weights, as large as "tiny"; returns its loss."""

    def __init__(
        self, depths: tuple[int, ...] = (3, 3, 9, 3), widths: tuple[int, ...] = (96, 192, 384, 768)
    ):
        super().__init__()
        transformers = transformers_module()
        config = transformers.ConvNextConfig(
            depths=list(depths), hidden_sizes=list(widths), num_labels=10
        )
        self.convnext = transformers.ConvNextForImageClassification(config)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        scores = self.convnext(pixel_values=images).logits
        return nn.functional.cross_entropy(scores.float(), labels)


def sharded(model: LanguageModel, layers_per_ipu: int) -> LanguageModel:
    """Embedding and output layer, which share their weights, on IPU 0; the layers on the next."""
    import poptorch

    parts = model.gpt.transformer
    poptorch.BeginBlock(parts.wte, ipu_id=0)
    for number, layer in enumerate(parts.h):
        if number % layers_per_ipu == 0:
            poptorch.BeginBlock(layer, ipu_id=1 + number // layers_per_ipu)
    poptorch.BeginBlock(parts.ln_f, ipu_id=0)
    return model


def transformers_module():  # noqa: ANN201 - a module, loaded only here
    try:
        import transformers
    except ImportError:
        raise RuntimeFailure(
            "this figure needs transformers, which is not installed.",
            hint="pip install transformers, or choose others with --only",
        ) from None
    return transformers


@dataclass(frozen=True)
class Case:
    """A training step: a model, a batch, an optimiser."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, ...]]  # for a number of samples
    n_batch: int
    optimizer: Callable[..., torch.optim.Optimizer]


def _images(n_channels: int, size: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda n: (torch.randn(n, n_channels, size, size), torch.randint(0, 10, (n,)))


def _sgd(parameters: ParamsT) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _adamw(parameters: ParamsT) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def gin_mlp() -> nn.Module:
    """As large as the dense part of a small graph network: five layers of width 64."""
    layers = [nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def mnist_mlp() -> nn.Module:
    """Three dense layers on 28×28 images."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10),
    )  # fmt: skip


def half_cases() -> dict[str, Case]:
    """Those that are trained in float and in half."""
    texts = lambda n: (torch.randint(0, 30522, (n, 128)), torch.randint(0, 2, (n,)))  # noqa: E731
    result = [
        Case("mlp", lambda: WithLoss(mnist_mlp()), _images(1, 28), 64, _sgd),
        Case("cnn", lambda: WithLoss(cifar_cnn()), _images(3, 32), 64, _sgd),
        Case("bert-tiny", TextClassifier, texts, 8, _adamw),
    ]
    return {case.name: case for case in result}


def large_cases() -> dict[str, Case]:
    """Models that fill a GPU, with the batches of their usual figures; small in a rehearsal."""
    texts = lambda n: (torch.randint(0, 30522, (n, 128)), torch.randint(0, 2, (n,)))  # noqa: E731
    ids = lambda n: (torch.randint(0, 50257, (n, 512)),)  # noqa: E731
    words = lambda n: (torch.randint(0, 32000, (n, 512)),)  # noqa: E731
    result = [
        Case("gpt2-small", lambda: LanguageModel(12, 768, 12), ids, 8, _adamw),
        Case("resnet50", lambda: WithLoss(resnet50()), _images(3, 224), 32, _sgd),
        Case("bert-base", lambda: TextClassifier(12, 768, 12), texts, 16, _adamw),
        Case("llama-110m", LlamaModel, words, 8, _adamw),
        Case("vit-b", ImageTransformer, _images(3, 224), 32, _adamw),
        Case("convnext-t", ImageConvNet, _images(3, 224), 32, _adamw),
    ]
    if is_rehearsal():
        small = _rehearsal_models()
        result = [replace(case, make=small[case.name], n_batch=1) for case in result]
    return {case.name: case for case in result}


def _rehearsal_models() -> dict[str, Callable[[], nn.Module]]:
    pooled = lambda: nn.Sequential(nn.AvgPool2d(7), cifar_cnn())  # noqa: E731
    return {
        "gpt2-small": lambda: LanguageModel(2, 32, 2),
        "resnet50": lambda: WithLoss(pooled()),
        "bert-base": lambda: TextClassifier(2, 32, 2),
        "llama-110m": lambda: LlamaModel(2, 48, 3),
        "vit-b": lambda: ImageTransformer(2, 48, 3),
        "convnext-t": lambda: ImageConvNet((1, 1, 1, 1), (8, 16, 16, 16)),
    }


def case_named(name: str) -> Case:
    """A large case by its name, followed by -bf16 or -autocast for these."""
    for suffix, change in (("-bf16", in_bfloat16), ("-autocast", with_autocast)):
        if name.endswith(suffix):
            return change(large_cases()[name.removesuffix(suffix)])
    return large_cases()[name]


class Autocast(nn.Module):
    """A model whose products are computed in bfloat16, from float32 weights."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *batch: Tensor) -> Tensor:
        with torch.autocast("cpu" if is_rehearsal() else "cuda", dtype=torch.bfloat16):
            return self.model(*batch)


def with_autocast(case: Case) -> Case:
    """A case with float32 weights whose products are computed in bfloat16."""
    return replace(case, name=f"{case.name}-autocast", make=lambda: Autocast(case.make()))


def in_bfloat16(case: Case) -> Case:
    """A case with bfloat16 weights and inputs."""

    def batch(n: int) -> tuple[Tensor, ...]:
        return tuple(t.bfloat16() if t.is_floating_point() else t for t in case.batch(n))

    return replace(case, name=f"{case.name}-bf16", make=lambda: case.make().bfloat16(), batch=batch)


def in_half(case: Case) -> Case:
    """A case with half weights and inputs."""

    def batch(n: int) -> tuple[Tensor, ...]:
        return tuple(t.half() if t.is_floating_point() else t for t in case.batch(n))

    return replace(case, make=lambda: case.make().half(), batch=batch)


def cases(n_batch_scale: int = 1) -> dict[str, Case]:
    """The four of the CPU figures and the small dense one of the GPU figures."""
    vectors = lambda n: (torch.randn(n, 100, 64), torch.randint(0, 10, (n,)))  # noqa: E731
    ids = lambda n: (torch.randint(0, 256, (n, 128)),)  # noqa: E731
    rows = lambda n: (torch.randn(n, 32), torch.randint(0, 10, (n,)))  # noqa: E731
    result = [
        Case("mnist", lambda: WithLoss(mnist_cnn()), _images(1, 28), 64 // n_batch_scale, _sgd),
        Case("cifar", lambda: WithLoss(cifar_cnn()), _images(3, 32), 64 // n_batch_scale, _sgd),
        # Of bytes; and with GPT-2's own vocabulary, whose output layer is most of the work.
        Case("gpt2-tiny", lambda: LanguageModel(4, 256, 4, 256), ids, 8, _adamw),
        Case("gpt2-tiny-50257", lambda: LanguageModel(4, 256, 4), ids, 8, _adamw),
        Case("lstm", lambda: WithLoss(Sequences()), vectors, 64 // n_batch_scale, _adamw),
        Case("gin-mlp", lambda: WithLoss(gin_mlp()), rows, 512, _adamw),
    ]
    return {case.name: case for case in result}
