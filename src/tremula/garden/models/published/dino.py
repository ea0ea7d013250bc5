"""DINO: a student learns from its teacher's view of large crops, in small crops too."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.models.published.encoder import EncoderLayer, EncoderSize, Patches

N_OUT = 65536
TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.04


class Backbone(nn.Module):
    """A vision transformer for crops of two sizes."""

    def __init__(self, size: EncoderSize, patch: int = 16):
        super().__init__()
        self.patches = Patches(size.width, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, size.width))
        self.positions = nn.Parameter(torch.zeros(1, size.n_positions, size.width))
        self.layers = nn.ModuleList([EncoderLayer(size) for _ in range(size.n_layers)])

    def embedded(self, images: Tensor) -> Tensor:
        images = (images.to(self.first.dtype) - 127.5) * (1 / 127.5)
        x = self.patches(images)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        return x + self.positions[:, : x.shape[1]]


class Head(nn.Module):
    """Dense layers to a narrow, normalised vector."""

    def __init__(self, width: int, n_hidden: int = 2048, n_out: int = 256):
        super().__init__()
        sizes = (width, n_hidden, n_hidden, n_out)
        self.dense = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.dense[:-1]:
            x = functional.gelu(layer(x))
        x = self.dense[-1](x)
        return x / x.norm(dim=-1, keepdim=True)


class LastLayer(nn.Module):
    """Scores of the prototypes."""

    def __init__(self, n_in: int = 256, n_out: int = N_OUT):
        super().__init__()
        self.out = nn.Linear(n_in, n_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x).float()


class Dino(nn.Module):
    """Student and teacher side by side on each chip; the teacher follows slowly."""

    def __init__(self, size: EncoderSize, n_prototypes: int = N_OUT):
        super().__init__()
        self.student, self.teacher = Backbone(size), Backbone(size)
        self.head, self.teacher_head = Head(size.width), Head(size.width)
        self.last, self.teacher_last = LastLayer(n_out=n_prototypes), LastLayer(n_out=n_prototypes)
        for module in (self.teacher, self.teacher_head, self.teacher_last):
            module.requires_grad_(False)

    def forward(self, large: Tensor, small: Tensor) -> Tensor:
        with poptorch.Block("embedding", ipu_id=0):
            seen = [self.student.embedded(large), self.student.embedded(small)]
            target = self.teacher.embedded(large).detach()
        with poptorch.Block("layers", ipu_id=1):
            for layer, wise in zip(self.student.layers, self.teacher.layers, strict=True):
                seen, target = [layer(x) for x in seen], wise(target).detach()
        with poptorch.Block("head", ipu_id=2):
            first = self.head(torch.cat([x[:, 0] for x in seen]))
            wanted = self.teacher_head(target[:, 0]).detach()
        with poptorch.Block("loss", ipu_id=3):
            scores = self.last(first)
            target_scores = self.teacher_last(wanted).detach()
            return poptorch.identity_loss(_loss(scores, target_scores), "none")

    def place(self) -> None:
        """Its blocks are in `forward`."""


def _loss(scores: Tensor, wanted: Tensor) -> Tensor:
    """Each crop should guess what the teacher says of each large crop, but its own."""
    n = wanted.shape[0] // 2
    targets = functional.softmax(wanted / TEACHER_TEMPERATURE, dim=-1).view(2, n, -1)
    guesses = functional.log_softmax(scores / TEMPERATURE, dim=-1).view(-1, n, wanted.shape[-1])
    terms = [
        -(targets[a] * guesses[b]).sum(-1).mean()
        for a in range(2)
        for b in range(guesses.shape[0])
        if a != b
    ]
    return torch.stack(terms).mean()
