"""Trains a small ResNet with halves, two replicas and accumulated gradients."""

import torch
from torch import Tensor, nn

import poptorch
from tremula.demo.classifiers import WithLoss
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.datasets.mnist import Mnist
from tremula.garden.models.resnet import BasicBlock, ResNet

N_REPLICAS, N_ACCUMULATED, N_BATCH = 2, 2, 8
LOSS_SCALE = 128.0
N_GROUPS = 4  # of channels, each normalised by itself


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_images, n_epochs, width = (3072, 1, 8) if settings.tiny else (60000, 3, 32)
    network = with_group_norms(ResNet(BasicBlock, (1, 1, 1, 1), 10, width)).half()
    settings.show(f"{sum(p.numel() for p in network.parameters()):,} weights of 16 bits")
    options = options_of()
    known = Mnist(train=True, subset=settings.tiny, n_images=n_images)
    data = poptorch.DataLoader(options, known, batch_size=N_BATCH, shuffle=True)
    optimizer = poptorch.optim.SGD(
        network.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4,
        loss_scaling=LOSS_SCALE, accum_type=torch.float32,
    )  # fmt: skip
    training = poptorch.trainingModel(WithLoss(network), options, optimizer)
    losses = []
    for epoch in range(n_epochs):
        for images, labels in data:
            losses.append(float(training(in_colour(images).half(), labels)[1].float().mean()))
        settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}")
    training.copyWeightsToHost()
    test = Mnist(train=False, subset=True, n_images=200)
    with torch.no_grad():
        right = network.float().eval()(in_colour(test.images)).argmax(1) == test.labels
    accuracy = float(right.float().mean())
    settings.show(f"accuracy on new images: {accuracy:.1%}")
    return Findings(
        results={"accuracy": accuracy},
        modelled=modelled_poptorch(
            training, settings, n_items=N_REPLICAS * N_ACCUMULATED * N_BATCH, unit="images/s"
        ),
        curves={"loss": losses},
    )


def in_colour(images: Tensor) -> Tensor:
    """Three channels, as a ResNet wants them."""
    return images.expand(-1, 3, -1, -1)


def options_of() -> poptorch.Options:
    options = poptorch.Options().replicationFactor(N_REPLICAS)
    options.Training.gradientAccumulation(N_ACCUMULATED)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    options.Precision.enableStochasticRounding(True)
    options.Popart.set("autoRecomputation", 2)  # NormOnly: norms and what follows them
    return options.outputMode(poptorch.OutputMode.All)


def with_group_norms(network: nn.Module) -> nn.Module:
    """Group norms in place of batch norms, whose statistics are poor for a few images."""
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(network, name, nn.GroupNorm(N_GROUPS, child.num_features))
        else:
            with_group_norms(child)
    return network
