"""Trains a classifier, serves it in batches of 16, and asks it from several clients at once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

import poptorch
from tremula.demo.classifiers import WithLoss
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.datasets.mnist import Mnist
from tremula.serving.client import InferenceClient
from tremula.serving.program import ServedProgram
from tremula.serving.server import serving
from tremula.serving.sources import program_of_poptorch

NAME = "digits"
N_BATCH, N_TRAINING_BATCH, N_ITERATIONS = 16, 20, 25
N_EPOCHS = 4
N_CLIENTS = 8
RATE = 0.1


class Digits(nn.Module):
    """One hidden layer; returns the logarithms of ten probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(784, 64), nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(self.hidden(images.flatten(1)).relu()).log_softmax(1)


def run(settings: Settings) -> Findings:
    network, losses = trained(settings)
    model, program = compiled(network)
    test = Mnist(train=False, subset=True)
    images = test.images.numpy()
    with serving(program) as port:
        settings.show(f"serving {NAME} at http://127.0.0.1:{port}/v2/models/{NAME}")
        settings.show(f"{N_CLIENTS} clients ask for {len(images):,} digits, one by one")
        answers = asked(f"http://127.0.0.1:{port}", images)
    settings.show("stopped: every request was answered")
    with torch.no_grad():
        direct = network(test.images).numpy()
    accuracy = float((answers.argmax(1) == test.labels.numpy()).mean())
    settings.show(f"accuracy of the answers: {accuracy:.2%}")
    return Findings(
        results={
            "accuracy": accuracy,
            "largest_difference": float(abs(answers - direct).max()),
            "answers": len(answers),
        },
        modelled=modelled_poptorch(model, settings, n_items=N_BATCH, unit="images/s"),
        curves={"loss": losses},
        picture=looked_at(network),
    )


def served(settings: Settings) -> ServedProgram:
    """What `tremula serve served_digits` serves."""
    return compiled(trained(settings)[0])[1]


def trained(settings: Settings) -> tuple[Digits, list[float]]:
    torch.manual_seed(1)
    network = Digits()
    data = Mnist(train=True, subset=settings.tiny)
    settings.show(f"training on {len(data):,} digits")
    options = poptorch.Options().deviceIterations(N_ITERATIONS).randomSeed(1)
    loader = poptorch.DataLoader(options, data, batch_size=N_TRAINING_BATCH, shuffle=True)
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
    model = poptorch.trainingModel(WithLoss(network), options, optimizer)
    losses = [
        float(model(images, labels)[1].mean()) for _ in range(N_EPOCHS) for images, labels in loader
    ]
    model.detachFromDevice()
    return network.eval(), losses


def compiled(network: Digits) -> tuple[poptorch.PoplarExecutor, ServedProgram]:
    """The network for batches of 16, and how it is served."""
    model = poptorch.inferenceModel(network)
    batch = {"images": np.zeros((N_BATCH, 1, 28, 28), np.float32)}
    return model, program_of_poptorch(model, batch, name=NAME, output_names=("log_chances",))


def looked_at(network: Digits) -> np.ndarray:
    """What twelve units of the hidden layer look at, in three rows."""
    weights = network.hidden.weight.detach().numpy()[:12]
    return weights.reshape(3, 4, 28, 28).transpose(0, 2, 1, 3).reshape(3 * 28, 4 * 28)


def asked(url: str, images: np.ndarray) -> np.ndarray:
    """The answers to all images, requested one by one by several clients."""

    def ask(part: np.ndarray) -> list[np.ndarray]:
        with InferenceClient(url) as client:
            return [client.infer(NAME, {"images": one[None]})["log_chances"][0] for one in part]

    with ThreadPoolExecutor(N_CLIENTS) as pool:
        parts = pool.map(ask, np.array_split(images, N_CLIENTS))
    return np.stack([answer for part in parts for answer in part])
