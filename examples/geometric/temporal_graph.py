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
from torch import nn
from torch.nn import functional
from torch_geometric.nn import TransformerConv

import poptorch
import poptorch_geometric  # noqa: F401 — static shapes of PyG's layers
from tremula.garden.graphs import events


class TemporalGraph(nn.Module):
    """Memory, attention over the last neighbours, and a guess of who meets whom."""

    def __init__(self, n_nodes, n_message, width, n_last):
        super().__init__()
        self.n_last, self.n_nodes = n_last, n_nodes
        self.register_buffer("memory", torch.zeros(n_nodes, width))
        self.register_buffer("last", torch.zeros(n_nodes, n_last, dtype=torch.int32))
        self.name = nn.Embedding(n_nodes, width)
        self.write = nn.GRUCell(2 * width + n_message, width)
        self.attend = TransformerConv(2 * width, width // 2, heads=2)
        self.score = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def embed(self, nodes):
        """Attention of some nodes over the neighbours they met last."""
        n = nodes.shape[0]
        neighbours = self.last.index_select(0, nodes).reshape(-1)
        places = torch.cat([nodes, neighbours])
        features = torch.cat([self.memory.index_select(0, places), self.name(places)], 1)
        targets = torch.arange(n).repeat_interleave(self.n_last)
        edges = torch.stack([n + torch.arange(n * self.n_last), targets])
        return self.attend(features, edges)[:n]

    def forward(self, source, target, other, message):
        embedded = self.embed(torch.cat([source, target, other]))
        one, two, three = embedded.chunk(3)
        right = self.score(torch.cat([one, two], 1)).squeeze(1)
        wrong = self.score(torch.cat([one, three], 1)).squeeze(1)
        loss = functional.softplus(wrong - right).mean()
        self.remember(source, target, message)
        return right - wrong, poptorch.identity_loss(loss, reduction="none")

    def remember(self, source, target, message):
        """Write the events into memory, and who met whom; the last of several events stays."""
        both, others = torch.cat([source, target]), torch.cat([target, source])
        with torch.no_grad():
            seen = torch.cat([self.memory[both], self.memory[others], message.repeat(2, 1)], 1)
            new = self.write(seen, self.memory[both])
            order = torch.arange(len(both)).repeat(1)
            latest = torch.full((self.n_nodes,), -1).scatter_reduce(0, both, order, "amax")
            event = latest.clamp(min=0)
            is_met = (latest >= 0).unsqueeze(1)
            self.memory.copy_(torch.where(is_met, new[event], self.memory))
            shifted = torch.cat([others[event].unsqueeze(1).int(), self.last[:, :-1]], 1)
            self.last.copy_(torch.where(is_met, shifted, self.last))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=50)
    args = parser.parse_args()

    torch.manual_seed(0)
    stream = events(args.events)
    first_item = int(stream.target.min())
    model = TemporalGraph(stream.n_nodes, stream.message.shape[1], width=16, n_last=4)
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
