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
    """Memory, attention over the last neighbours, and a guess of who meets whom.

    Events of a batch wait until the next one, which writes them into the memory before it reads
    it: so the loss reaches the weights that write. Row `n_nodes` is for events that never were.
    """

    def __init__(self, n_nodes, n_events, n_message, width, n_last):
        super().__init__()
        self.n_last, self.n_nodes = n_last, n_nodes
        self.register_buffer("memory", torch.zeros(n_nodes + 1, width))
        self.register_buffer("last", torch.zeros(n_nodes + 1, n_last, dtype=torch.int32))
        self.register_buffer("waiting", torch.full((2, n_events), n_nodes, dtype=torch.int32))
        self.register_buffer("messages", torch.zeros(n_events, n_message))
        self.name = nn.Embedding(n_nodes + 1, width)
        self.write = nn.GRUCell(2 * width + n_message, width)
        self.attend = TransformerConv(2 * width, width // 2, heads=2)
        self.score = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def embed(self, nodes, memory, last):
        """Attention of some nodes over the neighbours they met last."""
        n = nodes.shape[0]
        places = torch.cat([nodes, last.index_select(0, nodes).reshape(-1).to(nodes.dtype)])
        features = torch.cat([memory.index_select(0, places), self.name(places)], 1)
        targets = torch.arange(n * self.n_last) // self.n_last
        edges = torch.stack([n + torch.arange(n * self.n_last), targets])
        return self.attend(features, edges)[:n]

    def remembered(self):
        """Memory and last neighbours with the events that waited; of several the latest stays."""
        both, others = self.waiting.reshape(-1), self.waiting.flip(0).reshape(-1)
        own, met = self.memory.index_select(0, both), self.memory.index_select(0, others)
        new = self.write(torch.cat([own, met, self.messages.repeat(2, 1)], 1), own)
        order = torch.arange(both.shape[0])
        never = torch.full((self.n_nodes + 1,), -1)
        latest = never.scatter_reduce(0, both.long(), order, "amax")
        event, is_met = latest.clamp(min=0), (latest >= 0).unsqueeze(1)
        memory = torch.where(is_met, new.index_select(0, event), self.memory)
        first = others.index_select(0, event).unsqueeze(1)
        shifted = torch.cat([first, self.last[:, :-1]], 1)
        return memory, torch.where(is_met, shifted, self.last)

    def forward(self, source, target, other, message):
        memory, last = self.remembered()
        one, two, three = self.embed(torch.cat([source, target, other]), memory, last).chunk(3)
        right = self.score(torch.cat([one, two], 1)).squeeze(1)
        wrong = self.score(torch.cat([one, three], 1)).squeeze(1)
        loss = functional.softplus(wrong - right).mean()
        self.memory.copy_(memory.detach())
        self.last.copy_(last)
        self.waiting.copy_(torch.stack([source, target]))
        self.messages.copy_(message)
        return right - wrong, poptorch.identity_loss(loss, reduction="none")


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
