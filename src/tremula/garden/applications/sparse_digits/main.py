"""Trains a layer of few weights twice: with a fixed random pattern, and with one that moves.

RigL ("rigging the lottery", Evci et al. 2020): now and then the smallest weights go, and as many
grow where the gradient of the dense weight is largest. The pattern is data of the compiled program,
so it changes without compiling again. The edge of a digit's picture is always black: much of a
random pattern looks there.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

import poptorch
from poptorch.sparse import DynamicSparseLinear
from tremula.demo.classifiers import WithLoss
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.datasets.mnist import Mnist

WIDTH = 28  # of a picture
N_HIDDEN, N_BATCH, SIDE, DENSITY = 64, 64, 4, 1 / 32
RATE = 3e-3
MOVE_EVERY, MOVED_SHARE, LAST_MOVE = 20, 0.4, 0.75  # steps; of the blocks; of the training
N_FOR_GRADIENT = 512  # digits that say where weights should grow


def run(settings: Settings) -> Findings:
    digits, test = (Mnist(train, subset=settings.tiny) for train in (True, False))
    n_epochs = 3 if settings.tiny else 4
    settings.show(f"one weight in {1 / DENSITY:.0f}, blocks of {SIDE}, {len(digits):,} digits")
    fixed, moving = (SparseTraining() for _ in range(2))
    fixed.train(digits, n_epochs)
    losses = moving.train(digits, n_epochs, settings.show)
    right, moved_right = (one.accuracy(test) for one in (fixed, moving))
    settings.show(f"right: {right:.1%} with a fixed pattern, {moved_right:.1%} with one that moves")
    return Findings(
        results={
            "accuracy": moved_right,
            "errors_of_fixed_over_moving": (1 - right) / (1 - moved_right),
            "weights_at_edges_fixed": fixed.share_at_edges(),
            "weights_at_edges_moving": moving.share_at_edges(),
        },
        modelled=modelled_poptorch(moving.step, settings, n_items=N_BATCH, unit="images/s"),
        curves={"loss": losses},
        picture=np.concatenate([one.weights_of_pixels() for one in (fixed, moving)], 1),
    )


class SparseTraining:
    """A network whose first layer is sparse, and its compiled step; always the same start."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = DynamicSparseLinear(
            WIDTH**2, N_HIDDEN, DENSITY, SIDE, batch_size=N_BATCH,
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(N_HIDDEN, 10))
        network = nn.Sequential(self.layer, self.rest)
        options = poptorch.Options().updatableNamedBuffers(self.layer.pattern_buffers("model.0"))
        optimizer = poptorch.optim.Adam(network.parameters(), lr=RATE)
        self.step = poptorch.trainingModel(WithLoss(network), options, optimizer)

    def train(
        self, digits: Mnist, n_epochs: int, show: Callable[[str], None] | None = None
    ) -> list[float]:
        """The losses; if there is `show` to tell it, the pattern moves."""
        losses, last_move = [], LAST_MOVE * n_epochs * (len(digits) // N_BATCH)
        images, labels = digits.images.flatten(1), digits.labels.int()
        for number, rows in enumerate(batches(len(digits), n_epochs)):
            losses.append(float(self.step(images[rows], labels[rows])[1]))
            if show and number % MOVE_EVERY == 0 and number < last_move:
                some = torch.randperm(len(digits))[:N_FOR_GRADIENT]
                share = MOVED_SHARE * (1 + math.cos(math.pi * number / last_move)) / 2
                n_moved = self.move(images[some], digits.labels[some], share)
                if number % (5 * MOVE_EVERY) == 0:
                    show(f"  step {number}: loss {losses[-1]:.3f}, {n_moved} blocks move")
        self.step.copyWeightsToHost()
        return losses

    def move(self, images: Tensor, labels: Tensor, share: float) -> int:
        """Let a share of the blocks, the smallest, grow elsewhere; how many."""
        self.step.copyWeightsToHost()
        weight = self.layer.to_dense().detach().requires_grad_()
        scores = self.rest(nn.functional.linear(images, weight, self.layer.bias))
        loss = nn.functional.cross_entropy(scores, labels)
        n_moved = self.layer.rigl_update(torch.autograd.grad(loss, weight)[0], share)
        self.step.copyWeightsToDevice()
        self.step.copyNamedBuffersToDevice()
        return n_moved

    @torch.no_grad()
    def accuracy(self, test: Mnist) -> float:
        hidden = nn.functional.linear(
            test.images.flatten(1), self.layer.to_dense(), self.layer.bias
        )
        return float((self.rest(hidden).argmax(1) == test.labels).float().mean())

    def weights_of_pixels(self) -> np.ndarray:
        """How many weights look at each pixel, `float32[28, 28]`."""
        is_there = self.layer.to_dense().detach() != 0
        return is_there.float().sum(0).reshape(WIDTH, WIDTH).numpy()

    def share_at_edges(self) -> float:
        """The share of weights that look at the outermost four rows and columns."""
        weights = self.weights_of_pixels()
        return 1 - float(weights[4:-4, 4:-4].sum() / weights.sum())


def batches(n: int, n_epochs: int) -> Iterator[Tensor]:
    """Whole batches in an order that is always the same."""
    order = torch.Generator().manual_seed(1)
    for _ in range(n_epochs):
        yield from torch.randperm(n, generator=order)[: n - n % N_BATCH].split(N_BATCH)
