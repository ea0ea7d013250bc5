"""Knowledge-graph embeddings whose entities are sharded over replicas (BESS).

Each replica holds a shard of the entities, and all of the relations. A micro-batch has as many
triples of each pair of shards; heads are where their triple is scored, tails and entities that make
false triples (*negatives*) are swapped between replicas.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.models.knowledge_graphs.ops import l1_distances, swapped

Score = Literal["TransE", "RotatE", "DistMult", "ComplEx"]
_OF_REAL_NUMBERS = ("TransE", "DistMult")
_PRODUCTS = ("DistMult", "ComplEx")  # the others are distances
MARGIN = 12.0
REFUSED = -50000.0  # the score of a triple that is not a false one


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSizes:
    """Sizes of a model; `size` counts complex numbers but for TransE and DistMult."""

    score: Score
    n_entities: int
    n_relations: int
    size: int
    n_shards: int
    corrupts_tails_only: bool = False  # and takes the tails of other triples as negatives, too
    dtype: torch.dtype = torch.float32

    @property
    def n_rows(self) -> int:
        """Entities of a shard."""
        return -(-self.n_entities // self.n_shards)

    @property
    def width(self) -> int:
        return self.size if self.score in _OF_REAL_NUMBERS else 2 * self.size


class Embeddings(nn.Module):
    """Returns the loss of a micro-batch of triples; `entities` differs between replicas."""

    def __init__(self, shape: ScorerSizes):
        super().__init__()
        self.shape = shape
        n_of_relation = shape.size if shape.score == "RotatE" else shape.width
        entities = torch.empty(shape.n_shards, shape.n_rows, shape.width, dtype=shape.dtype)
        relations = torch.zeros(shape.n_relations, n_of_relation, dtype=shape.dtype)
        self.entities, self.relations = nn.Parameter(entities), nn.Parameter(relations)

    def forward(self, head: Tensor, relation: Tensor, tail: Tensor, negative: Tensor) -> Tensor:
        """head, relation, tail: [1, shards, triples]; negative: [1, shards, sets, entities]."""
        head, relation, tail, negative = (x.squeeze(0) for x in (head, relation, tail, negative))
        n_shards, n_triples = relation.shape
        wanted = torch.cat([head, tail, negative.flatten(1)], dim=1)
        width = self.shape.width
        rows = torch.index_select(self.entities, 0, wanted.flatten()).view(n_shards, -1, width)
        heads, moving = rows.split([n_triples, wanted.shape[1] - n_triples], dim=1)
        moved = swapped(moving) if n_shards > 1 else moving
        tails, others = moved.split([n_triples, moved.shape[1] - n_triples], dim=1)
        others = others.reshape(*negative.shape, width).transpose(0, 1).flatten(1, 2)
        links = torch.index_select(self.relations, 0, relation.flatten()).view(
            n_shards, n_triples, -1
        )
        true = self._of_triples(heads.flatten(0, 1), links.flatten(0, 1), tails.flatten(0, 1))
        if self.shape.corrupts_tails_only:
            false = self._with_false_tails(heads, links, tails, others)
            loss = _softmax_loss(true.float(), false.float(), self.shape.n_entities)
        else:
            false = self._with_either_false(heads, links, tails, others)
            loss = _log_sigmoid_loss(true.float(), false.float())
        return poptorch.identity_loss(loss, reduction="none")

    def _with_false_tails(self, h: Tensor, r: Tensor, t: Tensor, others: Tensor) -> Tensor:
        """[triples, negatives]: tails of other triples, and the sampled entities."""
        h, r, t = (x.flatten(0, 1) for x in (h, r, t))
        candidates = torch.cat([t, others.flatten(0, 1)])
        scores = self._of_pairs(self._moved(h, r), candidates)
        is_own = torch.arange(len(candidates))[None, :] == torch.arange(len(t))[:, None]
        return scores + REFUSED * is_own

    def _with_either_false(self, h: Tensor, r: Tensor, t: Tensor, others: Tensor) -> Tensor:
        """[triples, negatives]: one half has a false head, the other a false tail."""
        n_shards, n_triples, half = *r.shape[:2], r.shape[1] // 2
        others = others.reshape(n_shards, n_triples, -1, self.shape.width)
        false_heads, false_tails = (x.flatten(0, 2) for x in others.split(half, dim=1))
        queries = self._moved_back(t[:, :half].flatten(0, 1), r[:, :half].flatten(0, 1))
        with_heads = self._of_pairs(queries, false_heads)
        queries = self._moved(h[:, half:].flatten(0, 1), r[:, half:].flatten(0, 1))
        with_tails = self._of_pairs(queries, false_tails)
        both = [x.view(n_shards, half, -1) for x in (with_heads, with_tails)]
        return torch.cat(both, dim=1).flatten(0, 1)

    # -- scores ------------------------------------------------------------------------------------

    def scores_of_tails(self, h: Tensor, r: Tensor, entities: Tensor) -> Tensor:
        """[triples, entities]: how likely each entity is the tail, on this computer."""
        queries = self._moved(h, r)
        if self.shape.score in _PRODUCTS:
            return queries @ entities.t()
        return -torch.cdist(queries, entities, p=1)

    def _of_triples(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        moved = self._moved(h, r)
        if self.shape.score in _PRODUCTS:
            return (moved * t).sum(-1)
        return -(moved - t).abs().sum(-1)

    def _of_pairs(self, queries: Tensor, entities: Tensor) -> Tensor:
        if self.shape.score in _PRODUCTS:
            return queries @ entities.t()
        return -l1_distances(queries, entities)

    def _moved(self, h: Tensor, r: Tensor) -> Tensor:
        """Where a relation takes a head."""
        if self.shape.score == "TransE":
            return h + r
        if self.shape.score == "DistMult":
            return h * r
        return _complex_product(h, _on_circle(r) if self.shape.score == "RotatE" else r)

    def _moved_back(self, t: Tensor, r: Tensor) -> Tensor:
        """Where a relation came from."""
        if self.shape.score == "TransE":
            return t - r
        if self.shape.score == "DistMult":
            return t * r
        if self.shape.score == "RotatE":
            return _complex_product(t, _on_circle(-r))
        real, imaginary = r.chunk(2, dim=-1)
        return _complex_product(t, torch.cat([real, -imaginary], dim=-1))


def _complex_product(a: Tensor, b: Tensor) -> Tensor:
    """Rows are real parts, then imaginary ones."""
    (x, y), (u, v) = a.chunk(2, dim=-1), b.chunk(2, dim=-1)
    return torch.cat([x * u - y * v, x * v + y * u], dim=-1)


def _on_circle(angles: Tensor) -> Tensor:
    """Sines and cosines are taken of halves: the measured models do, since it is faster."""
    angles, dtype = angles.half(), angles.dtype
    return torch.cat([angles.cos().to(dtype), angles.sin().to(dtype)], dim=-1)


# -- losses, in float ------------------------------------------------------------------------------


def _log_sigmoid_loss(true: Tensor, false: Tensor) -> Tensor:
    """Negatives count as likely as they seem to be."""
    weights = functional.softmax(false, dim=-1).detach()
    of_false = (weights * functional.logsigmoid(-false - MARGIN)).sum(-1)
    return -0.5 * (functional.logsigmoid(true + MARGIN) + of_false).sum()


def _softmax_loss(true: Tensor, false: Tensor, n_entities: int) -> Tensor:
    """As if all entities had been negatives."""
    false = false + math.log((n_entities - 1) / false.shape[1])
    scores = torch.cat([true.unsqueeze(1), false], dim=1)
    target = torch.zeros(len(true), dtype=torch.long)
    return functional.cross_entropy(scores, target, reduction="sum")
