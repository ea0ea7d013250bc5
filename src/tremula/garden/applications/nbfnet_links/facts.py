"""A generated knowledge graph: members of a ring and their groups; what follows from both."""

from dataclasses import dataclass

import torch
from torch import Tensor

RELATIONS = ("follows", "belongs to", "its next one belongs to")


@dataclass(frozen=True)
class Facts:
    """Known facts as edges of a type (each also backwards), and questions with their answers."""

    edges: Tensor  # int64[2, n_edges]
    types: Tensor  # int64[n_edges]; behind the relations come the same backwards
    n_entities: int
    n_types: int
    train: Tensor  # int64[n, 2]: about whom, and the answer
    test: Tensor


def facts(n_members: int, n_groups: int, seed: int = 0) -> Facts:
    """Members in a ring of random order, each in a group; whose group has the one behind me?

    Some answers are facts of the graph, by which the rule can be learnt; the others are asked.
    """
    draw = torch.Generator().manual_seed(seed)
    ring = torch.randperm(n_members, generator=draw)
    following = torch.empty_like(ring).scatter_(0, ring, ring.roll(-1))
    group = n_members + torch.randint(n_groups, (n_members,), generator=draw)
    members = torch.arange(n_members)
    answers = torch.stack([members, group[following]], 1)
    order = torch.randperm(n_members, generator=draw)
    train, test = answers[order[: n_members // 2]], answers[order[n_members // 2 :]]
    heads = torch.cat([members, members])
    tails = torch.cat([following, group])
    kinds = torch.arange(2).repeat_interleave(n_members)
    edges = torch.cat([torch.stack([heads, tails]), torch.stack([tails, heads])], 1)
    types = torch.cat([kinds, kinds + 2])
    return Facts(edges, types, n_members + n_groups, 4, train, test)
