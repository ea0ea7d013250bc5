"""Replicas in several processes: each computes its own, collectives see those of all.

A process holds rows of all values, its own replicas; `gathered` joins the rows of all processes in
the order of replicas, on all of them. They run the same script, so they meet at the same points.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from tremula.frontends.popxl.core.ir import Ir
from tremula.ir.host.programs.distributed import join_processes


@dataclass(frozen=True)
class OwnReplicas:
    """The replicas of this process among all."""

    first: int
    n: int
    n_total: int

    @property
    def n_processes(self) -> int:
        return self.n_total // self.n

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.n)

    def gathered(self, own: torch.Tensor) -> torch.Tensor:
        """`[own replicas, …]` of each process → `[all replicas, …]`."""
        if self.n_processes == 1:
            return own
        join_processes(self.n_processes, own.device)
        copy = own.clone(memory_format=torch.contiguous_format)
        sent = copy.reshape(-1).view(torch.uint8)  # no type is unknown to the network
        came = [torch.empty_like(sent) for _ in range(self.n_processes)]
        dist.all_gather(came, sent)
        return torch.cat(came).view(own.dtype).reshape(self.n_total, *own.shape[1:])


def own_replicas(ir: Ir) -> OwnReplicas:
    return OwnReplicas(ir.replica_offset, ir.instance_replication_factor, ir.replication_factor)
