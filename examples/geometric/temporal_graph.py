"""A temporal graph network: nodes have a memory, which every event changes.

    python temporal_graph.py [--events N] [--epochs N]

Users come back to items they like. For each batch of events, the model reads the memory of the
nodes and what they last saw (attention over their last neighbours), guesses which item an event is
with, and writes the events into the memory. Memory and neighbours are buffers of the model on the
device. Shapes are static: a batch has a fixed number of events, a node of neighbours.
"""

# Arguments when run as a test: --events 1200 --epochs 3

import argparse

import torch

import poptorch
from tremula.garden.applications.temporal_graph.model import TemporalGraph
from tremula.garden.models.datasets.graphs import events

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=50)
    args = parser.parse_args()

    torch.manual_seed(0)
    stream = events(args.events)
    first_item = int(stream.target.min())
    n_message = stream.message.shape[1]
    model = TemporalGraph(stream.n_nodes, args.batch_size, n_message, width=16, n_last=4)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=5e-3)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    print(f"{args.events} events of {stream.n_nodes} nodes")
    for epoch in range(args.epochs):
        margins = []
        for begin in range(0, args.events, args.batch_size):
            part = slice(begin, begin + args.batch_size)
            other = torch.randint(first_item, stream.n_nodes, (args.batch_size,))
            margin, loss = training(
                stream.source[part], stream.target[part], other, stream.message[part]
            )
            margins.append(margin)
        share = float((torch.cat(margins) > 0).float().mean())
        print(f"Epoch {epoch}: loss {float(loss):.3f}, the right item preferred in {share:.2f}")
    print("Better than chance:", share > 0.6)
