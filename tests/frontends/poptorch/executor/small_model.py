"""A model of two layers, compiled for training: what tests of the executor share."""

import torch
from torch import nn

import poptorch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(4, 2)

    def forward(self, x, y=None):
        out = self.fc2(self.relu(self.fc1(x)))
        return out if y is None else (out, nn.functional.mse_loss(out, y))


X, Y = torch.ones(4, 3), torch.zeros(4, 2)
NOT_COMPILED = "Model has not been compiled or has been destroyed."


def training(options=None, **arguments):
    torch.manual_seed(0)
    model = Model()
    made = {name: make(model.parameters()) for name, make in arguments.items()}
    return model, poptorch.trainingModel(model, options, **made)
