"""Operations of replicas that share tensors out between them, tremula::*."""

import torch
from torch import Tensor

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("own_shard(Tensor x, int n_replicas) -> Tensor")  # this replica's part, flat
_library.define("gathered(Tensor shard, int[] shape, int n_replicas) -> Tensor")
_library.define("sum_over_replicas(Tensor x) -> Tensor")
# Tagged, so that no pass folds it like a constant: every replica has another.
_library.define("replica_number() -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
# Within groups of `size` replicas, `stride` apart; all on tiles only.
_library.define("group_all_reduce(Tensor x, str operation, int size, int stride) -> Tensor")
_library.define("group_all_gather(Tensor x, int size, int stride) -> Tensor")  # a row for each
_library.define("group_gathered(Tensor shard, int[] shape, int size, int stride) -> Tensor")
_library.define("group_reduce_scatter(Tensor x, str operation, int size, int stride) -> Tensor")
_library.define("group_shard(Tensor x, int size, int stride) -> Tensor")  # own part, flat


@torch.library.register_fake("tremula::own_shard", lib=_library)
def _own_shard(x: Tensor, n_replicas: int) -> Tensor:
    return x.new_empty((-(-x.numel() // n_replicas),))


@torch.library.register_fake("tremula::gathered", lib=_library)
def _gathered(shard: Tensor, shape: list[int], n_replicas: int) -> Tensor:  # noqa: ARG001
    return shard.new_empty(shape)


@torch.library.register_fake("tremula::sum_over_replicas", lib=_library)
def _sum_over_replicas(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("tremula::replica_number", lib=_library)
def _replica_number() -> Tensor:
    return torch.empty((), dtype=torch.int32)


@torch.library.register_fake("tremula::group_all_reduce", lib=_library)
def _group_all_reduce(x: Tensor, operation: str, size: int, stride: int) -> Tensor:  # noqa: ARG001
    return x.new_empty(x.shape)


@torch.library.register_fake("tremula::group_all_gather", lib=_library)
def _group_all_gather(x: Tensor, size: int, stride: int) -> Tensor:  # noqa: ARG001
    return x.new_empty((size, *x.shape))


@torch.library.register_fake("tremula::group_gathered", lib=_library)
def _group_gathered(shard: Tensor, shape: list[int], size: int, stride: int) -> Tensor:  # noqa: ARG001
    return shard.new_empty(shape)


@torch.library.register_fake("tremula::group_reduce_scatter", lib=_library)
def _group_reduce_scatter(x: Tensor, operation: str, size: int, stride: int) -> Tensor:  # noqa: ARG001
    return x.new_empty((-(-x.numel() // size),))


@torch.library.register_fake("tremula::group_shard", lib=_library)
def _group_shard(x: Tensor, size: int, stride: int) -> Tensor:  # noqa: ARG001
    return x.new_empty((-(-x.numel() // size),))
