"""An LSTM learns to spell: the next character of Python's own documentation.

    python lstm.py [--steps N] [--length N]

All steps of the LSTM are part of one program, so sequences have a fixed length.
"""

# Arguments when run as a test: --steps 20 --length 16 --width 64

import argparse

import torch
from torch import nn

import poptorch
from _throughput import print_throughput
from tremula.garden.models.datasets.text import characters


class Speller(nn.Module):
    def __init__(self, n_characters, width):
        super().__init__()
        self.embedding = nn.Embedding(n_characters, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, n_characters)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, ids):
        states, _ = self.lstm(self.embedding(ids[:, :-1]))
        scores = self.out(states)
        return scores, self.loss(scores.flatten(0, 1), ids[:, 1:].flatten())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="calls of the model")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    torch.manual_seed(0)
    rows, alphabet = characters(args.length + 1)
    print(f"{len(rows)} rows of {args.length + 1} characters, {len(alphabet)} different ones")
    options = poptorch.Options().deviceIterations(4).logCycleCount(True)
    data = poptorch.DataLoader(options, rows, batch_size=args.batch_size, shuffle=True)

    model = Speller(len(alphabet), args.width)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=5e-3)
    training_model = poptorch.trainingModel(model, options, optimizer)
    first = last = None
    for step, ids in zip(range(args.steps), data, strict=False):
        _, last = training_model(ids)
        first = last if first is None else first
        if step % 20 == 19:
            print(f"Call {step + 1}: loss {last:.3f}")
    print("The loss fell:", bool(last < 0.8 * first))
    print_throughput(training_model, data.combinedBatchSize * args.length, "characters")
