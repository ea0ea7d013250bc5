"""Convolutional networks with their losses, as they were trained: ResNet, ResNeXt, EfficientNet."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch

Norm = Callable[[int], nn.Module]


def group_norm(n_groups: int) -> Norm:
    return lambda n: nn.GroupNorm(n_groups, n)


def normalised(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes of pixels as numbers around zero."""
    return (images.to(dtype) - 127.5) * (1 / 127.5)


class GroupedBottleneck(nn.Module):
    """1×1, 3×3 in groups, 1×1, with a shortcut; the stride is in the middle."""

    def __init__(self, n_in: int, width: int, n_out: int, stride: int, n_groups: int, norm: Norm):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(n_in, width, 1, bias=False),
                nn.Conv2d(width, width, 3, stride, 1, groups=n_groups, bias=False),
                nn.Conv2d(width, n_out, 1, bias=False),
            ]
        )
        self.norms = nn.ModuleList([norm(width), norm(width), norm(n_out)])
        self.shortcut = nn.Identity()
        if stride > 1 or n_in != n_out:
            conv = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, norm(n_out))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.convs[0](x)))
        y = torch.relu(self.norms[1](self.convs[1](y)))
        return torch.relu(self.norms[2](self.convs[2](y)) + self.shortcut(x))


class ImageNet(nn.Module):
    """A stem, four groups of bottlenecks, and classes; `keeps` says behind which blocks to keep."""

    def __init__(
        self, depths: Sequence[int], *, width: int = 64, n_groups: int = 1,
        norm: Norm | None = None, keeps: Sequence[int] = (), n_classes: int = 1000,
        is_bytes: bool = True,
    ):  # fmt: skip
        super().__init__()
        norm = norm or nn.BatchNorm2d
        self.is_bytes, self.keeps = is_bytes, frozenset(keeps)
        self.conv, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64)
        blocks, n_in = [], 64
        for group, depth in enumerate(depths):
            inner, n_out = width << group, 256 << group
            for place in range(depth):
                stride = 2 if group and not place else 1
                blocks.append(GroupedBottleneck(n_in, inner, n_out, stride, n_groups, norm))
                n_in = n_out
        self.layers = nn.ModuleList(blocks)
        self.out = nn.Linear(n_in, n_classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = normalised(images, self.conv.weight.dtype) if self.is_bytes else images
        x = functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 3, 2, 1)
        for number, block in enumerate(self.layers):
            x = block(x)
            if number in self.keeps:
                x = poptorch.recomputationCheckpoint(x)
        scores = self.out(x.mean((2, 3)))
        loss = functional.cross_entropy(scores.float(), labels, label_smoothing=0.1)
        return poptorch.identity_loss(loss, "none")

    def place(self, layers_per_chip: Sequence[int]) -> None:
        poptorch.BeginBlock(self.conv, "chip0", ipu_id=0)
        first = 0
        for chip, n_layers in enumerate(layers_per_chip):
            if n_layers and chip:
                poptorch.BeginBlock(self.layers[first], f"chip{chip}", ipu_id=chip)
            first += n_layers


# -- EfficientNet ----------------------------------------------------------------------------------

# Of B4: repeats, channels, kernel, stride of each group of blocks.
B4_GROUPS = (
    (2, 24, 3, 1), (4, 32, 3, 2), (4, 56, 5, 2), (6, 112, 3, 2), (6, 160, 5, 1), (8, 272, 5, 2),
    (2, 448, 3, 1),
)  # fmt: skip
B4_STEM, B4_TOP, GROUP_CHANNELS, EXPANSION = 48, 1792, 16, 4


class InvertedBlock(nn.Module):
    """Expand, convolve in groups of 16 channels, weigh channels, project; a shortcut if it fits."""

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, expansion: int, norm: Norm):
        super().__init__()
        inner = n_in * expansion
        self.expand = nn.Conv2d(n_in, inner, 1, bias=False) if expansion > 1 else nn.Identity()
        n_groups = max(1, inner // GROUP_CHANNELS)
        self.conv = nn.Conv2d(
            inner, inner, kernel, stride, kernel // 2, groups=n_groups, bias=False
        )
        n_squeezed = max(1, n_in // 4)
        self.squeeze = nn.Conv2d(inner, n_squeezed, 1)
        self.excite = nn.Conv2d(n_squeezed, inner, 1)
        self.project = nn.Conv2d(inner, n_out, 1, bias=False)
        self.norms = nn.ModuleList([norm(inner), norm(inner), norm(n_out)])
        self.has_shortcut = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        y = x
        if isinstance(self.expand, nn.Conv2d):
            y = functional.silu(self.norms[0](self.expand(y)))
        y = functional.silu(self.norms[1](self.conv(y)))
        weights = functional.silu(self.squeeze(y.mean((2, 3), keepdim=True)))
        y = self.norms[2](self.project(y * torch.sigmoid(self.excite(weights))))
        return y + x if self.has_shortcut else y


class EfficientNet(nn.Module):
    """EfficientNet with group convolutions and group norms, and its loss."""

    def __init__(
        self, groups: Sequence[tuple[int, int, int, int]] = B4_GROUPS, norm: Norm | None = None,
        n_classes: int = 1000,
    ):  # fmt: skip
        super().__init__()
        norm = norm or group_norm(4)
        self.stem, self.stem_norm = nn.Conv2d(3, B4_STEM, 3, 2, 1, bias=False), norm(B4_STEM)
        blocks, n_in, self.first_of_group = [], B4_STEM, []
        for group, (repeats, n_out, kernel, stride) in enumerate(groups):
            self.first_of_group.append(len(blocks))
            for place in range(repeats):
                expansion = EXPANSION if group else 1
                step = stride if not place else 1
                blocks.append(InvertedBlock(n_in, n_out, kernel, step, expansion, norm))
                n_in = n_out
        self.layers = nn.ModuleList(blocks)
        self.top, self.top_norm = nn.Conv2d(n_in, B4_TOP, 1, bias=False), norm(B4_TOP)
        self.dropout, self.out = nn.Dropout(0.4), nn.Linear(B4_TOP, n_classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = normalised(images, self.stem.weight.dtype)
        x = functional.silu(self.stem_norm(self.stem(x)))
        for block in self.layers:
            x = block(x)
        x = functional.silu(self.top_norm(self.top(x))).mean((2, 3))
        loss = functional.cross_entropy(self.out(self.dropout(x)).float(), labels)
        return poptorch.identity_loss(loss, "none")

    def place(self, firsts: Sequence[int]) -> None:
        """Begin chip c at block firsts[c]."""
        poptorch.BeginBlock(self.stem, "chip0", ipu_id=0)
        for chip, first in enumerate(firsts[1:], start=1):
            poptorch.BeginBlock(self.layers[first], f"chip{chip}", ipu_id=chip)


# -- UNet ------------------------------------------------------------------------------------------


class UNet(nn.Module):
    """Ronneberger's network of valid convolutions, from 572 to 388 pixels, over four chips."""

    def __init__(self, width: int = 64, n_classes: int = 2, side: int = 572):
        super().__init__()
        sizes = [width << level for level in range(5)]
        self.down = nn.ModuleList(
            [_two_convs(n_in, n_out) for n_in, n_out in zip([1, *sizes], sizes, strict=False)]
        )
        self.up = nn.ModuleList([nn.ConvTranspose2d(n, n // 2, 2, 2) for n in reversed(sizes[1:])])
        self.merge = nn.ModuleList([_two_convs(n, n // 2) for n in reversed(sizes[1:])])
        self.dropout, self.out = nn.Dropout(0.5), nn.Conv2d(sizes[0], n_classes, 1)
        self.side = side

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        with poptorch.Block("chip0", ipu_id=0):
            first, x = self._encode(0, images)
            second, x = self._encode(1, x)
            first, second = (
                _cropped(first, _crop(0, self.side)),
                _cropped(second, _crop(1, self.side)),
            )
        with poptorch.Block("chip1", ipu_id=1):
            third, x = self._encode(2, x)
            fourth, x = self._encode(3, x)
            x = self.up[0](self.dropout(self.down[4](x)))
            third = _cropped(third, _crop(2, self.side))
        with poptorch.Block("chip2", ipu_id=2):
            x = self.up[1](self._decode(0, x, fourth))
            x = self.up[2](self._decode(1, x, third))
        with poptorch.Block("chip3", ipu_id=3):
            x = self.up[3](self._decode(2, x, second))
            scores = self.out(self._decode(3, x, first)).float()
            return poptorch.identity_loss(_segmentation_loss(scores, labels), "none")

    def _encode(self, level: int, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.down[level](x)
        return x, functional.max_pool2d(x, 2)

    def _decode(self, level: int, x: Tensor, skip: Tensor) -> Tensor:
        return self.merge[level](torch.cat([_cropped(skip, x.shape[-1]), x], dim=1))


def _two_convs(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3), nn.ReLU(), nn.Conv2d(n_out, n_out, 3), nn.ReLU()
    )


def _crop(level: int, side: int) -> int:
    """The side that a skip of this level is cut to: 392, 200, 104, 56 of 572."""
    smallest = side
    for _ in range(4):
        smallest = (smallest - 4) // 2
    size = smallest - 4
    for _ in range(3 - level):
        size = 2 * size - 4
    return 2 * size


def _cropped(x: Tensor, side: int) -> Tensor:
    first = (x.shape[-1] - side) // 2
    return x[..., first : first + side, first : first + side]


def _segmentation_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy and Dice."""
    chances = torch.sigmoid(scores)
    entropy = functional.binary_cross_entropy_with_logits(scores, labels.float())
    overlap = 2 * (chances * labels).sum() / (chances.sum() + labels.sum() + 1)
    return entropy + 1 - overlap
