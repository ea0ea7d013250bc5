"""The training loop of PopTorch's tutorial on efficient data loading: what the host adds to a call.

A small classifier of images of 128 × 128, trained with SGD and momentum. With synthetic data
nothing is copied to the device; with real data the asynchronous loader hands over a call's images.
"""

from typing import TYPE_CHECKING

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import ModelCall, time_call
from tremula.validate.workloads.table import ModelledValue, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

FAMILY = "host"
SIDE, N_CLASSES, N_FLAT, N_HIDDEN = 128, 10, 41772, 100
BATCH, ITERATIONS = 16, 50


@workload("PopTorch training loop", FAMILY, gbytes=3)
def training_loop(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Images a second, by the time of a call."""
    n_images, n_replicas = row.number("batch", BATCH), row.number("replicas", row.n_ipus)
    call = _call(n_images, row.number("device_iterations", ITERATIONS), n_replicas, _is_real(row))
    time = time_call(call, chip_name)
    items = n_images * call.n_micro_batches
    return ModelledValue(time.cycles, time.clock_hz, value=items / time.seconds)


def _is_real(row: MeasuredRow) -> bool:
    return row.text("data", "real") != "synthetic"


def _call(n_images: int, n_iterations: int, n_replicas: int, is_real: bool) -> ModelCall:
    import torch

    import poptorch

    images = torch.zeros(n_images, 1, SIDE, SIDE)
    labels = torch.zeros(n_images, dtype=torch.long)
    return ModelCall(
        model=_classifier(),
        micro_batch=(images, labels),
        optimizer=lambda parameters: poptorch.optim.SGD(
            parameters, lr=0.001, momentum=0.9, use_combined_accum=False
        ),
        device_iterations=n_iterations,
        replication_factor=n_replicas,
        uses_made_up_data=not is_real,
    )


def _classifier() -> "nn.Module":
    from torch import flatten, nn

    class Classifier(nn.Module):
        """Two convolutions, a norm of groups and two linear layers."""

        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 5, 3), nn.Conv2d(5, 12, 5)
            self.pool, self.norm = nn.MaxPool2d(2, 2), nn.GroupNorm(3, 12)
            self.fc1, self.fc2 = nn.Linear(N_FLAT, N_HIDDEN), nn.Linear(N_HIDDEN, N_CLASSES)
            self.relu, self.log_softmax = nn.ReLU(), nn.LogSoftmax(dim=0)
            self.loss = nn.NLLLoss()

        def forward(self, x: "Tensor", labels: "Tensor") -> "tuple[Tensor, Tensor]":
            x = self.pool(self.relu(self.conv1(x)))
            x = self.norm(self.relu(self.conv2(x)))
            x = self.relu(self.fc1(flatten(x, start_dim=1)))
            x = self.log_softmax(self.fc2(x))
            return x, self.loss(x, labels)

    return Classifier().train()
