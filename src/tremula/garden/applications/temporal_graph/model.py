"""A temporal graph network: nodes have a memory, which every event changes."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import TransformerConv

import poptorch
import poptorch_geometric  # noqa: F401 — static shapes of PyG's layers


class TemporalGraph(nn.Module):
    """Memory, attention over the last neighbours, and a guess of who meets whom.

    Events of a batch wait until the next one, which writes them into the memory before it reads
    it: so the loss reaches the weights that write. Row `n_nodes` is for events that never were.
    """

    memory: Tensor
    last: Tensor
    waiting: Tensor
    messages: Tensor

    def __init__(self, n_nodes: int, n_events: int, n_message: int, width: int, n_last: int):
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

    def embed(self, nodes: Tensor, memory: Tensor, last: Tensor) -> Tensor:
        """Attention of some nodes over the neighbours they met last."""
        n = nodes.shape[0]
        places = torch.cat([nodes, last.index_select(0, nodes).reshape(-1).to(nodes.dtype)])
        features = torch.cat([memory.index_select(0, places), self.name(places)], 1)
        targets = torch.arange(n * self.n_last) // self.n_last
        edges = torch.stack([n + torch.arange(n * self.n_last), targets])
        return self.attend(features, edges)[:n]

    def remembered(self) -> tuple[Tensor, Tensor]:
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

    def forward(
        self, source: Tensor, target: Tensor, other: Tensor, message: Tensor
    ) -> tuple[Tensor, Tensor]:
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
