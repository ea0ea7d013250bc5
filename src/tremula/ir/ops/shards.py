"""Operations of replicas that share tensors out between them, tremula::*."""

import torch
from torch import Tensor

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("own_shard(Tensor x, int n_replicas) -> Tensor")  # this replica's part, flat
_library.define("gathered(Tensor shard, int[] shape, int n_replicas) -> Tensor")
_library.define("sum_over_replicas(Tensor x) -> Tensor")


@torch.library.register_fake("tremula::own_shard", lib=_library)
def _own_shard(x: Tensor, n_replicas: int) -> Tensor:
    return x.new_empty((-(-x.numel() // n_replicas),))


@torch.library.register_fake("tremula::gathered", lib=_library)
def _gathered(shard: Tensor, shape: list[int], n_replicas: int) -> Tensor:  # noqa: ARG001
    return shard.new_empty(shape)


@torch.library.register_fake("tremula::sum_over_replicas", lib=_library)
def _sum_over_replicas(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)
