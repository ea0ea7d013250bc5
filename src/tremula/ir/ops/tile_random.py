"""Random numbers of tiles: draws from the generators of their workers, and the seeds of those.

The host has PyTorch's generator only. It remembers the seeds that were set, and each setting seeds
that generator with them, so that equal seeds give equal numbers there, too.
"""

import zlib

import torch
from torch import Tensor

_library = torch.library.Library("tremula", "FRAGMENT")
_SEEDED = (torch.Tag.nondeterministic_seeded,)
_library.define("tile_draws(int[] tiles, int size, bool is_normal) -> Tensor", tags=_SEEDED)
_library.define("tile_seeds(int[] tiles, int n_workers) -> Tensor", tags=_SEEDED)
_library.define("set_tile_seeds(Tensor seeds, int[] tiles) -> Tensor", tags=_SEEDED)

_host_seeds: dict[int, Tensor] = {}  # by tile, as they were set: int32 [workers, 4]


def _draw(tiles: list[int], size: int, is_normal: bool) -> Tensor:
    return (torch.randn if is_normal else torch.rand)(len(tiles), size)


def _read(tiles: list[int], n_workers: int) -> Tensor:
    unset = torch.zeros((n_workers, 4), dtype=torch.int32)
    return torch.stack([_host_seeds.get(tile, unset) for tile in tiles])


def _set(seeds: Tensor, tiles: list[int]) -> Tensor:
    own = seeds.detach().cpu().clone()
    _host_seeds.update(zip(tiles, own, strict=True))
    torch.manual_seed(zlib.crc32(own.numpy().tobytes()))
    return seeds.clone()


for _device in ("CPU", "CUDA"):
    _library.impl("set_tile_seeds", _set, _device)
_library.impl("tile_draws", _draw, "CompositeExplicitAutograd")
_library.impl("tile_seeds", _read, "CompositeExplicitAutograd")


@torch.library.register_fake("tremula::tile_draws", lib=_library)
def _fake_draw(tiles: list[int], size: int, is_normal: bool) -> Tensor:  # noqa: ARG001
    return torch.empty(len(tiles), size)


@torch.library.register_fake("tremula::tile_seeds", lib=_library)
def _fake_read(tiles: list[int], n_workers: int) -> Tensor:
    return torch.empty((len(tiles), n_workers, 4), dtype=torch.int32)


@torch.library.register_fake("tremula::set_tile_seeds", lib=_library)
def _fake_set(seeds: Tensor, tiles: list[int]) -> Tensor:  # noqa: ARG001
    return torch.empty_like(seeds)
