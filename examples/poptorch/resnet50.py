"""A training step of ResNet-50 with replicas, accumulated gradients, halves and loss scaling.

    python resnet50.py [--replicas N] [--accumulation N] [--half] [--steps N] [--small]

Images are generated; the point is the step. Each replica is the whole model on a separate IPU:
a call takes `replicas × accumulation × batch size` images and updates the weights once. With
`--half` weights and activations are 16-bit floats, and the loss is scaled so that small gradients
survive.
"""

# Arguments when run as a test: --small --steps 2

import argparse
import time

import torch
from torch import nn

import poptorch
from _throughput import print_throughput
from tremula.garden.models.resnet import Bottleneck, ResNet, resnet50


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def forward(self, images, labels):
        scores = self.model(images)
        return scores, self.loss(scores.float(), labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="fewer and narrower layers")
    parser.add_argument("--cycles", action="store_true", help="compile for tiles, count cycles")
    args = parser.parse_args()

    torch.manual_seed(0)
    size = 64 if args.small else 224
    model = ResNet(Bottleneck, (1, 1, 1, 1), 100, 16) if args.small else resnet50()
    n_parameters = sum(p.numel() for p in model.parameters())
    print(f"{n_parameters:,} parameters, images of {size}×{size}")

    options = poptorch.Options().replicationFactor(args.replicas).logCycleCount(args.cycles)
    options.broadcastBuffers(False)  # each replica keeps its own statistics for batch norm
    options.Training.gradientAccumulation(args.accumulation)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    options.outputMode(poptorch.OutputMode.All)
    if args.half:
        model.half()
        options.Precision.setPartialsType(torch.half)
    optimizer = poptorch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-5,
        loss_scaling=1024.0 if args.half else 1.0, accum_type=torch.float32,
    )  # fmt: skip
    training_model = poptorch.trainingModel(WithLoss(model), options, optimizer)

    n_images = args.replicas * args.accumulation * args.batch_size
    images = torch.randn(n_images, 3, size, size, dtype=torch.half if args.half else torch.float)
    labels = torch.randint(0, 100, (n_images,))
    losses = []
    for step in range(args.steps):
        began = time.perf_counter()
        _, loss = training_model(images, labels)
        losses.append(float(loss.mean()))
        rate = n_images / (time.perf_counter() - began)
        print(f"Update {step + 1}: loss {losses[-1]:.3f}, {rate:.1f} images per second here")
    print(f"{len(loss)} losses per call, one of each micro-batch")
    if args.cycles:
        print_throughput(training_model, n_images)
