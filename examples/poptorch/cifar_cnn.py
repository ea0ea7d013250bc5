"""A convolutional network with batch norm on 32×32 colour images, accumulating gradients.

    python cifar_cnn.py [--epochs N] [--images N]

The images are generated (shapes and textures, tremula.garden.models.datasets.shapes): they have the
size of CIFAR-10's, and that is all. What to see here: a weight update uses several micro-batches,
the learning rate falls from epoch to epoch, statistics of batch norm come back with the weights.
"""

# Run by the wide tests.
# Arguments when run as a test: --images 128 --epochs 2 --batch-size 8 --width 8

import argparse
from itertools import pairwise

import torch
from torch import nn

import poptorch
from _throughput import print_throughput
from tremula.garden.models.datasets.shapes import ShapeImages


def convolution(n_in, n_out):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()
    )


class Classifier(nn.Module):
    """Two convolutions at 32×32, at 16×16 and at 8×8, then the mean over places."""

    def __init__(self, width=16, n_classes=10):
        super().__init__()
        widths = [3, width, width, 2 * width, 2 * width, 4 * width]
        layers = [convolution(n_in, n_out) for n_in, n_out in pairwise(widths)]
        layers.insert(2, nn.MaxPool2d(2))
        layers.insert(5, nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers)
        self.out = nn.Linear(widths[-1], n_classes)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images, labels=None):
        scores = self.out(self.layers(images).mean((2, 3)))
        return scores if labels is None else (scores, self.loss(scores, labels))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--accumulation", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(0)
    options = poptorch.Options().logCycleCount(True)
    options.Training.gradientAccumulation(args.accumulation)
    options.outputMode(poptorch.OutputMode.All)
    data = poptorch.DataLoader(
        options, ShapeImages(args.images, seed=1), batch_size=args.batch_size, shuffle=True
    )
    test = ShapeImages(500, seed=2)

    model = Classifier(args.width)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    training_model = poptorch.trainingModel(model, options, optimizer)
    inference_model = poptorch.inferenceModel(model.eval())

    for epoch in range(args.epochs):
        model.train()
        losses, right = [], 0
        for images, labels in data:
            scores, loss = training_model(images, labels)  # of every micro-batch
            losses.append(loss.mean())
            right += int((scores.argmax(1) == labels).sum())
        share = right / (len(data) * data.combinedBatchSize)
        print(f"Epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}, right {share:.1%}")
        schedule.step()
        training_model.setOptimizer(optimizer)

    training_model.detachFromDevice()
    model.eval()
    right = int((inference_model(test.images).argmax(1) == test.labels).sum())
    print(f"Accuracy on new images: {right / len(test):.1%}")
    print_throughput(training_model, data.combinedBatchSize)
