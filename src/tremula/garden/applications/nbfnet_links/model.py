"""NBFNet: representations of all pairs (question, entity), by generalised Bellman–Ford steps."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class BellmanFordLayer(nn.Module):
    """Messages along all edges, multiplied by what the relation means; summed where they arrive.

    The start is added again in each layer, as the distance zero is in Bellman's equation.
    """

    def __init__(self, n_types: int, width: int):
        super().__init__()
        self.relations = nn.Parameter(
            torch.ones(n_types, width) + 0.1 * torch.randn(n_types, width)
        )
        self.mix = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, state: Tensor, start: Tensor, edges: Tensor, types: Tensor) -> Tensor:
        """State and start are [n_questions, n_entities, width]."""
        summed = start + messages(state, self.relations, edges, types)
        return functional.relu(self.norm(self.mix(torch.cat([state, summed], 2))))


def messages(state: Tensor, relations: Tensor, edges: Tensor, types: Tensor) -> Tensor:
    """For each entity the sum of state · relation over the edges that end there."""
    sent = state.index_select(1, edges[0]) * relations.index_select(0, types)
    return torch.zeros_like(state).index_add(1, edges[1], sent)


class LinkPredictor(nn.Module):
    """A score of every entity as the answer to each question."""

    edges: Tensor
    types: Tensor

    def __init__(self, edges: Tensor, types: Tensor, n_entities: int, n_types: int, width: int):
        super().__init__()
        self.register_buffer("edges", edges)
        self.register_buffer("types", types)
        self.n_entities = n_entities
        self.question = nn.Parameter(torch.randn(width))
        self.layers = nn.ModuleList(BellmanFordLayer(n_types, width) for _ in range(2))
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, about: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        is_start = functional.one_hot(about.long(), self.n_entities).unsqueeze(2)
        start = state = is_start * self.question
        for layer in self.layers:
            state = layer(state, start, self.edges, self.types)
        scores = self.score(state).squeeze(2)
        return scores, functional.cross_entropy(scores, answer)
