"""MNIST in plain PyTorch: a network, a loss, an optimiser, a loop. Compare mnist_poptorch.py.

python mnist_pytorch.py [--epochs N] [--subset]
"""

# Arguments when run as a test: --subset --images 1760 --batch-size 16

import argparse

import torch
from torch import nn

from tremula.garden.models.datasets.mnist import Mnist


class Block(nn.Module):
    """Convolution, maximum of each 2×2 square, ReLU."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(n_in, n_out, 3), nn.MaxPool2d(2), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


class Network(nn.Module):
    """Two blocks and two dense layers; returns the logarithms of ten probabilities."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(1, 32), Block(32, 64))
        self.dense = nn.Sequential(nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x):
        return self.dense(self.blocks(x).flatten(1)).log_softmax(1)


class TrainingModelWithLoss(nn.Module):
    """The network and its loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.NLLLoss()

    def forward(self, images, labels):
        predictions = self.model(images)
        return predictions, self.loss(predictions, labels)


def n_correct(predictions, labels):
    return int((predictions.argmax(1) == labels).sum())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="MNIST training in PyTorch")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--test-batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--subset", action="store_true", help="the small set: no download")
    parser.add_argument("--images", type=int, help="train with the first of them only")
    parser.add_argument("--test-images", type=int, help="test with the first of them only")
    args = parser.parse_args()

    torch.manual_seed(1)
    training_data = torch.utils.data.DataLoader(
        Mnist(train=True, subset=args.subset, n_images=args.images),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
    )
    test_data = torch.utils.data.DataLoader(
        Mnist(train=False, subset=args.subset, n_images=args.test_images),
        batch_size=args.test_batch_size,
    )

    model = Network()
    training_model = TrainingModelWithLoss(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    # Train
    for epoch in range(args.epochs):
        for images, labels in training_data:
            predictions, loss = training_model(images, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"Epoch {epoch + 1}: loss {loss:.3f}")

    # Test
    right = 0
    with torch.no_grad():
        for images, labels in test_data:
            right += n_correct(model(images), labels)
    n_images = len(test_data) * args.test_batch_size
    print(f"Accuracy on the test set: {100 * right / n_images:.2f}%")
