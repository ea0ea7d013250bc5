"""ResNet-50 and the blocks of its smaller kin, in plain PyTorch."""

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, n_in: int, width: int, stride: int):
        super().__init__()
        self.conv1 = _conv(n_in, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(n_in, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions with a shortcut; the stride is in the 3×3 one."""

    expansion = 4

    def __init__(self, n_in: int, width: int, stride: int):
        super().__init__()
        n_out = width * self.expansion
        self.conv1 = _conv(n_in, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, n_out, 1)
        self.bn3 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(n_in, n_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, four groups of blocks, a mean over places, a dense layer."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        n_classes: int = 1000,
        width: int = 64,
    ):
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, width, 7, 2), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )  # fmt: skip
        groups, n_in = [], width
        for group, depth in enumerate(depths):
            blocks = []
            for place in range(depth):
                stride = 2 if group > 0 and place == 0 else 1
                blocks.append(block(n_in, width << group, stride))
                n_in = (width << group) * block.expansion
            groups.append(nn.Sequential(*blocks))
        self.groups = nn.Sequential(*groups)
        self.out = nn.Linear(n_in, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.groups(self.stem(x)).mean((2, 3)))


def _conv(n_in: int, n_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)


def _shortcut(n_in: int, n_out: int, stride: int) -> nn.Module:
    if n_in == n_out and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out))


def resnet18(n_classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), n_classes)


def resnet50(n_classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), n_classes)
