"""Which elements of a data set belong to which process."""

from collections.abc import Iterator

import torch

__all__ = ["PartitionSampler"]


class PartitionSampler(torch.utils.data.Sampler[int]):
    """The share of one process in the elements 0 … n_elements-1: a contiguous range of them.

    `n_combined` (elements per combined batch): every process gets the same number of whole
    combined batches, and what is left over belongs to none. None: nothing is left over, the first
    processes get one element more than the last ones.

    `seed`: the range is one of a permutation, which is the same in all processes and another in
    each epoch. The elements that nobody got in an epoch 0, 2, 4, … are then all part of the next
    one: whoever loads two epochs has seen everything.
    """

    def __init__(
        self,
        *,
        n_elements: int,
        process_id: int,
        n_processes: int,
        n_combined: int | None,
        seed: int | None,
    ):
        self._n_elements = n_elements
        self._seed = seed
        self._epoch = 0
        n_each, n_left = divmod(n_elements, n_processes)
        if n_combined is None:
            self._begin = process_id * n_each + min(process_id, n_left)
            self._end = self._begin + n_each + (process_id < n_left)
            self._n_used = n_elements
        else:
            n_each = n_elements // (n_combined * n_processes) * n_combined
            self._begin, self._end = process_id * n_each, (process_id + 1) * n_each
            self._n_used = n_processes * n_each

    def __len__(self) -> int:
        return self._end - self._begin

    def __iter__(self) -> Iterator[int]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        if self._seed is None:
            return iter(range(self._begin, self._end))
        order = self._permutation(epoch)
        if epoch % 2 == 1:
            self._swap_in(self._permutation(epoch - 1)[self._n_used :], order)
        return iter(order[self._begin : self._end].tolist())

    def _permutation(self, epoch: int) -> torch.Tensor:
        assert self._seed is not None, "only called when shuffling"
        generator = torch.Generator().manual_seed(self._seed + epoch)
        return torch.randperm(self._n_elements, generator=generator)

    def _swap_in(self, left_over: torch.Tensor, order: torch.Tensor) -> None:
        """Exchange elements so that none of `left_over` is behind the ones that are used."""
        if self._n_used == 0:
            return
        is_left_over = torch.isin(order, left_over)
        unlucky = is_left_over[self._n_used :].nonzero().flatten() + self._n_used
        # Fewer are left over than are used, so there are enough to give up their places.
        places = (~is_left_over[: self._n_used]).nonzero().flatten()[: len(unlucky)]
        order[places], order[unlucky] = order[unlucky].clone(), order[places].clone()
