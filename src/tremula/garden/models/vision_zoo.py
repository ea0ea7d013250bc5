"""Architectures of vision, as torchvision and timm have them, in plain PyTorch and small."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - as every PyTorch program names it
from torch import Tensor, nn

from tremula.garden.models.resnet import BasicBlock, Bottleneck, ResNet

N_CLASSES = 4


def _conv(n_in: int, n_out: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, normalisation, activation."""
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(inplace=True),
    )


def _head(n: int, n_classes: int = N_CLASSES) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, n_classes))


def alexnet() -> nn.Module:
    """Large kernels, overlapping pools, dense layers."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(12 * 9, 32), nn.ReLU(), nn.Linear(32, N_CLASSES),
    )  # fmt: skip


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    n_in = 3
    for n in (8, 8, 0, 12, 12, 0, 16, 16, 0):
        layers += [nn.MaxPool2d(2)] if n == 0 else [*_conv(n_in, n)]
        n_in = n or n_in
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 4 * 4, N_CLASSES))


def resnet18() -> nn.Module:
    return ResNet(BasicBlock, (1, 1, 1, 1), N_CLASSES, width=8)


def resnet50() -> nn.Module:
    return ResNet(Bottleneck, (1, 1, 1, 1), N_CLASSES, width=4)


class ResNeXtBlock(nn.Module):
    """A bottleneck whose middle convolution has groups."""

    def __init__(self, n: int, groups: int):
        super().__init__()
        self.body = nn.Sequential(
            _conv(n, n, 1), _conv(n, n, 3, groups=groups), nn.Conv2d(n, n, 1, bias=False),
            nn.BatchNorm2d(n),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


def resnext() -> nn.Module:
    return nn.Sequential(_conv(3, 16, 3, 2), ResNeXtBlock(16, 4), ResNeXtBlock(16, 4), _head(16))


class DenseNetLayer(nn.Module):
    """Adds channels to those it got."""

    def __init__(self, n_in: int, growth: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(n_in), nn.Conv2d(n_in, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


def densenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), DenseNetLayer(8, 4), DenseNetLayer(12, 4),
        nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.AvgPool2d(2),
        DenseNetLayer(8, 4), DenseNetLayer(12, 4), _head(16),
    )  # fmt: skip


def mobilenet_v1() -> nn.Module:
    return nn.Sequential(
        _conv(3, 8, 3, 2), _conv(8, 8, 3, groups=8), _conv(8, 16, 1),
        _conv(16, 16, 3, 2, groups=16), _conv(16, 16, 1), _head(16),
    )  # fmt: skip


class SqueezeExcite(nn.Module):
    """Channels weighted by what the whole image says."""

    def __init__(self, n: int, gate: Callable[[Tensor], Tensor]):
        super().__init__()
        self.reduce, self.expand, self.gate = nn.Conv2d(n, 4, 1), nn.Conv2d(4, n, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(F.silu(self.reduce(x.mean((2, 3), keepdim=True)))))


class InvertedResidual(nn.Module):
    """Wide inside, narrow outside, depthwise in between."""

    def __init__(
        self, n: int, act: type[nn.Module], gate: Callable[[Tensor], Tensor] | None = None
    ):
        super().__init__()
        wide = 3 * n
        self.body = nn.Sequential(
            nn.Conv2d(n, wide, 1, bias=False), nn.BatchNorm2d(wide), act(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            act(), SqueezeExcite(wide, gate) if gate else nn.Identity(),
            nn.Conv2d(wide, n, 1, bias=False), nn.BatchNorm2d(n),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def mobilenet_v2() -> nn.Module:
    return nn.Sequential(_conv(3, 8, 3, 2), InvertedResidual(8, nn.ReLU6), _head(8))


def mobilenet_v3() -> nn.Module:
    block = InvertedResidual(8, nn.Hardswish, F.hardsigmoid)
    return nn.Sequential(_conv(3, 8, 3, 2), block, _head(8))


def efficientnet(width: int = 8, n_classes: int = N_CLASSES) -> nn.Module:
    blocks = [InvertedResidual(width, nn.SiLU, torch.sigmoid) for _ in range(2)]
    return nn.Sequential(_conv(3, width, 3, 2), *blocks, _head(width, n_classes))


class Fire(nn.Module):
    """Squeeze, then two expansions side by side."""

    def __init__(self, n_in: int, n: int):
        super().__init__()
        self.squeeze = nn.Conv2d(n_in, 4, 1)
        self.narrow, self.wide = nn.Conv2d(4, n, 1), nn.Conv2d(4, n, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.narrow(x)), F.relu(self.wide(x))], 1)


def squeezenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(8, 8),
        Fire(16, 8), nn.Conv2d(16, N_CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


class Inception(nn.Module):
    """Four branches side by side."""

    def __init__(self, n: int):
        super().__init__()
        self.one, self.three = _conv(n, 4, 1), nn.Sequential(_conv(n, 4, 1), _conv(4, 4, 3))
        self.five = nn.Sequential(_conv(n, 4, 1), _conv(4, 4, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), _conv(n, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


def inception() -> nn.Module:
    return nn.Sequential(_conv(3, 8, 3, 2), Inception(8), nn.MaxPool2d(2), Inception(16), _head(16))


class ShuffleUnit(nn.Module):
    """Half of the channels are worked on, then all are shuffled."""

    def __init__(self, n: int):
        super().__init__()
        half = n // 2
        depthwise = _conv(half, half, 3, groups=half)[:2]
        self.body = nn.Sequential(_conv(half, half, 1), depthwise, _conv(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        unchanged, worked = x.chunk(2, 1)
        x = torch.cat([unchanged, self.body(worked)], 1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> nn.Module:
    return nn.Sequential(_conv(3, 16, 3, 2), ShuffleUnit(16), ShuffleUnit(16), _head(16))


class ConvNeXtBlock(nn.Module):
    """A depthwise 7×7, a normalisation over channels, two dense layers, a learnt scale."""

    def __init__(self, n: int):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(n, n, 7, padding=3, groups=n), nn.LayerNorm(n)
        self.up, self.down = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.scale = nn.Parameter(0.1 * torch.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(out)))).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), ConvNeXtBlock(8), ConvNeXtBlock(8), _head(8))


class PatchAttention(nn.Module):
    """Attention of several heads, with an optional learnt bias."""

    def __init__(self, n: int, n_heads: int, n_places: int = 0):
        super().__init__()
        self.n_heads, self.qkv, self.out = n_heads, nn.Linear(n, 3 * n), nn.Linear(n, n)
        shape = (n_heads, n_places, n_places)
        self.bias = nn.Parameter(torch.zeros(shape)) if n_places else None

    def forward(self, x: Tensor) -> Tensor:
        n_batch, n_places, n = x.shape
        qkv = self.qkv(x).reshape(n_batch, n_places, 3, self.n_heads, n // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        return self.out(out.transpose(1, 2).reshape(n_batch, n_places, n))


class TransformerBlock(nn.Module):
    def __init__(self, n: int, mixer: nn.Module):
        super().__init__()
        self.mixer, self.norm1, self.norm2 = mixer, nn.LayerNorm(n), nn.LayerNorm(n)
        self.mlp = nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class SmallVisionTransformer(nn.Module):
    """Patches, a class token, positions, blocks."""

    def __init__(self, n: int = 16):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, n, 8, 8), nn.Parameter(torch.zeros(1, 1, n))
        self.positions = nn.Parameter(torch.randn(1, 17, n) * 0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(n, PatchAttention(n, 2)) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(n), nn.Linear(n, N_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Windows(nn.Module):
    """Attention inside windows of 4 × 4 places, moved by `shift`."""

    def __init__(self, n: int, shift: int):
        super().__init__()
        self.attention, self.shift = PatchAttention(n, 2, 16), shift

    def forward(self, x: Tensor) -> Tensor:
        n_batch, n_places, n = x.shape
        side = round(n_places**0.5)
        x = torch.roll(x.view(n_batch, side, side, n), (-self.shift, -self.shift), (1, 2))
        x = x.view(n_batch, side // 4, 4, side // 4, 4, n).transpose(2, 3).reshape(-1, 16, n)
        x = self.attention(x).view(n_batch, side // 4, side // 4, 4, 4, n).transpose(2, 3)
        x = torch.roll(x.reshape(n_batch, side, side, n), (self.shift, self.shift), (1, 2))
        return x.reshape(n_batch, n_places, n)


class SmallSwin(nn.Module):
    """Blocks with windows, moved every second time."""

    def __init__(self, n: int = 16):
        super().__init__()
        self.patches = nn.Conv2d(3, n, 4, 4)
        self.blocks = nn.Sequential(*(TransformerBlock(n, Windows(n, s)) for s in (0, 2)))
        self.head = nn.Linear(n, N_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.blocks(x).mean(1))


class TokenMixer(nn.Module):
    """A dense layer over places."""

    def __init__(self, n_places: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(n_places, 16), nn.GELU(), nn.Linear(16, n_places))

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x.transpose(1, 2)).transpose(1, 2)


class MlpMixer(nn.Module):
    def __init__(self, n: int = 16):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, n, 8, 8), nn.Linear(n, N_CLASSES)
        self.blocks = nn.Sequential(*(TransformerBlock(n, TokenMixer(16)) for _ in range(2)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class SmallUNet(nn.Module):
    """Down, up, and the same scale joined; a class for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.bottom = _conv(3, 8), _conv(8, 12), _conv(12, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 12, 2, 2), nn.ConvTranspose2d(12, 8, 2, 2)
        self.join2, self.join1 = _conv(24, 12), _conv(16, 8)
        self.head = nn.Conv2d(8, N_CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.join2(torch.cat([self.up2(x), second], 1))
        return self.head(self.join1(torch.cat([self.up1(x), first], 1)))


class FeaturePyramid(nn.Module):
    """Two scales joined by interpolation; a class for each place of the finer one."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = _conv(3, 8, 3, 2), _conv(8, 16, 3, 2)
        self.side, self.top, self.head = nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        top = F.interpolate(self.top(self.coarse(fine)), scale_factor=2, mode="nearest")
        out = self.head(self.side(fine) + top)
        return F.interpolate(out, size=x.shape[-2:], mode="bilinear", align_corners=False)


def ghostnet() -> nn.Module:
    return nn.Sequential(_conv(3, 8, 3, 2), Ghost(8, 16), Ghost(16, 16), _head(16))


class Ghost(nn.Module):
    """Half of the channels from a convolution, half from cheap copies of those."""

    def __init__(self, n_in: int, n: int):
        super().__init__()
        self.main, self.cheap = _conv(n_in, n // 2, 1), _conv(n // 2, n // 2, 3, groups=n // 2)

    def forward(self, x: Tensor) -> Tensor:
        main = self.main(x)
        return torch.cat([main, self.cheap(main)], 1)


class RegNetBlock(ResNeXtBlock):
    """A ResNeXt block with squeeze and excitation behind it."""

    def __init__(self, n: int):
        super().__init__(n, 4)
        self.gate = SqueezeExcite(n, torch.sigmoid)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.gate(self.body(x)))


def regnet() -> nn.Module:
    return nn.Sequential(_conv(3, 16, 3, 2), RegNetBlock(16), _head(16))


class ConvMixerBlock(nn.Module):
    def __init__(self, n: int):
        super().__init__()
        self.depthwise = nn.Sequential(
            nn.Conv2d(n, n, 5, padding="same", groups=n), nn.GELU(), nn.BatchNorm2d(n)
        )
        self.pointwise = nn.Sequential(nn.Conv2d(n, n, 1), nn.GELU(), nn.BatchNorm2d(n))

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(x + self.depthwise(x))


def convmixer() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), ConvMixerBlock(16), ConvMixerBlock(16), _head(16))


class PreActBlock(nn.Module):
    """Normalisation and activation before convolution, in groups, as in ResNet v2 and BiT."""

    def __init__(self, n: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, n), nn.GroupNorm(4, n)
        self.conv1, self.conv2 = nn.Conv2d(n, n, 3, padding=1), nn.Conv2d(n, n, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.norm1(x)))
        return x + self.conv2(F.relu(self.norm2(out)))


def resnet_v2() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), PreActBlock(16), PreActBlock(16), _head(16))


class AutoEncoder(nn.Module):
    """Classes for places through a narrow middle, by pixel shuffling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.PixelUnshuffle(2), _conv(12, 8), nn.InstanceNorm2d(8))
        self.up = nn.Sequential(nn.Conv2d(8, 4 * N_CLASSES, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.up(F.leaky_relu(self.down(x), 0.1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "AlexNet": alexnet,
    "AutoEncoder": AutoEncoder,
    "ConvMixer": convmixer,
    "ConvNeXt": convnext,
    "DenseNet": densenet,
    "EfficientNet": efficientnet,
    "FeaturePyramid": FeaturePyramid,
    "GhostNet": ghostnet,
    "Inception": inception,
    "MLP-Mixer": MlpMixer,
    "MobileNet v1": mobilenet_v1,
    "MobileNet v2": mobilenet_v2,
    "MobileNet v3": mobilenet_v3,
    "RegNet": regnet,
    "ResNeXt": resnext,
    "ResNet v2": resnet_v2,
    "ResNet-18": resnet18,
    "ResNet-50": resnet50,
    "ShuffleNet": shufflenet,
    "SqueezeNet": squeezenet,
    "SmallSwin": SmallSwin,
    "U-Net": SmallUNet,
    "VGG": vgg,
    "ViT": SmallVisionTransformer,
}


class WithCrossEntropy(nn.Module):
    """Returns the loss alone; works for classes of images and of places."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(images), labels)


def tiny_vision_model(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A model that returns its loss, and a batch of two 32 × 32 images for it."""
    torch.manual_seed(0)
    model = MODELS[name]()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        shape = model.eval()(images).shape
    labels = torch.randint(0, N_CLASSES, (shape[0], *shape[2:]))
    return WithCrossEntropy(model).train(), (images, labels)
