"""Graphs that are generated: communities, transactions with frauds, a stream of events."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data


def communities(
    n_nodes: int, n_groups: int = 8, n_features: int = 16, degree: float = 12.0, seed: int = 0
) -> Data:
    """A stochastic block model: most edges inside groups; features hint at the group `y`."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.randint(n_groups, (n_nodes,), generator=generator)
    n_tried = int(degree * n_nodes)
    source = torch.randint(n_nodes, (n_tried,), generator=generator)
    # Most edges end inside the group of their source: at a random member of it.
    order = group.argsort()
    start = torch.cat([torch.zeros(1, dtype=torch.int64), group.bincount().cumsum(0)])
    size = start.diff()[group[source]]
    inside = order[start[group[source]] + (torch.rand(n_tried, generator=generator) * size).long()]
    anywhere = torch.randint(n_nodes, (n_tried,), generator=generator)
    is_inside = torch.rand(n_tried, generator=generator) < 0.85
    target = torch.where(is_inside, inside, anywhere)
    both = torch.cat([torch.stack([source, target]), torch.stack([target, source])], 1)
    edges = both[:, both[0] != both[1]].unique(dim=1)
    centres = torch.randn(n_groups, n_features, generator=generator)
    noise = torch.randn(n_nodes, n_features, generator=generator)
    is_train = torch.rand(n_nodes, generator=generator) < 0.6
    return Data(x=centres[group] + 2.0 * noise, edge_index=edges, y=group, train_mask=is_train)


# Types of edges between accounts.
RELATIONS = ("pays", "shares a device with", "shares an address with")


def transactions(n_accounts: int = 2000, seed: int = 0) -> Data:
    """Accounts with edges of three types; frauds share devices and addresses with each other.

    `x` are amounts and counts that hardly differ; `y` is 1 for a fraud.
    """
    generator = torch.Generator().manual_seed(seed)
    is_fraud = torch.rand(n_accounts, generator=generator) < 0.15
    frauds = is_fraud.nonzero().flatten()

    def anyone(n: int) -> Tensor:
        return torch.randint(n_accounts, (n,), generator=generator)

    def fraud(n: int) -> Tensor:
        return frauds[torch.randint(len(frauds), (n,), generator=generator)]

    n_pays, n_shared = 4 * n_accounts, n_accounts
    edges = [
        torch.stack([anyone(n_pays), anyone(n_pays)]),
        torch.stack([fraud(n_shared), fraud(n_shared)]),
        torch.stack([anyone(n_shared // 2), anyone(n_shared // 2)]),
    ]
    kinds = torch.cat([torch.full((e.shape[1],), i) for i, e in enumerate(edges)])
    # Half of the shared devices are innocent: families.
    family = torch.stack([anyone(n_shared), anyone(n_shared)])
    edge_index = torch.cat([*edges, family], 1)
    edge_type = torch.cat([kinds, torch.full((n_shared,), 1)])
    x = torch.randn(n_accounts, 8, generator=generator)
    x[:, 0] += 0.5 * is_fraud
    is_train = torch.rand(n_accounts, generator=generator) < 0.6
    return Data(
        x=x, edge_index=edge_index, edge_type=edge_type, y=is_fraud.long(), train_mask=is_train
    )


@dataclass(frozen=True)
class Events:
    """Interactions in the order of time: who, with what, when, and what it was like."""

    source: Tensor
    target: Tensor
    time: Tensor
    message: Tensor
    n_nodes: int


def events(n_events: int = 4000, n_users: int = 60, n_items: int = 40, seed: int = 0) -> Events:
    """A stream in which users return to the items they like; items come behind users."""
    generator = torch.Generator().manual_seed(seed)
    liked = torch.randint(n_items, (n_users, 4), generator=generator)
    user = torch.randint(n_users, (n_events,), generator=generator)
    choice = torch.randint(4, (n_events,), generator=generator)
    item = liked[user, choice]
    surprise = torch.rand(n_events, generator=generator) < 0.1
    item = torch.where(surprise, torch.randint(n_items, (n_events,), generator=generator), item)
    time = torch.rand(n_events, generator=generator).cumsum(0)
    message = torch.nn.functional.one_hot(choice, 4).float()
    return Events(user, n_users + item, time, message, n_users + n_items)
