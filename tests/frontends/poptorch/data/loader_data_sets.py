"""Data sets for the tests of loaders, in a module that another process can import."""

import os
import time
from collections import namedtuple

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Pair = namedtuple("Pair", "data label")


class Counting(Dataset):
    """Element i is a tensor of shape [2] full of i."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.full((2,), float(index))


class CountingForever(IterableDataset):
    """Consecutive numbers, from a data set without a length."""

    def __init__(self, length):
        self.begin, self.end = 0, length

    def __iter__(self):
        for index in range(self.begin, self.end):
            yield torch.full((2,), float(index))


class CountingWithLength(CountingForever):
    def __len__(self):
        return self.end - self.begin


def split_among_workers(worker_id):
    """A worker_init_fn: each worker gets a contiguous part."""
    info = get_worker_info()
    n_each = -(-info.dataset.end // info.num_workers)
    info.dataset.begin = worker_id * n_each
    info.dataset.end = min(info.dataset.end, (worker_id + 1) * n_each)


class Mapped:
    """An iterable of function(0), function(1), …"""

    def __init__(self, length, function):
        self.length, self.function = length, function

    def __len__(self):
        return self.length

    def __iter__(self):
        return map(self.function, range(self.length))


class Failing:
    """Raises an error at one element, in the epochs given."""

    def __init__(self, error, at, epochs=(0,)):
        self.error, self.at, self.epochs = error, at, epochs
        self.epoch = -1

    def __iter__(self):
        self.epoch += 1
        for index in range(4):
            if index == self.at and self.epoch in self.epochs:
                raise self.error
            yield torch.tensor([float(index)])


class CountedEpochs:
    """Adds a byte to a file whenever an epoch begins."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path, "ab") as file:
            file.write(b".")
        for index in range(3):
            yield torch.tensor([index])


class Stuck:
    """Gives two elements, then hangs for an hour."""

    def __iter__(self):
        yield torch.zeros(1)
        yield torch.ones(1)
        time.sleep(3600)


class Dying:
    """Gives one element, then its process is gone."""

    def __iter__(self):
        yield torch.zeros(1)
        yield torch.ones(1)
        os._exit(7)


class Sum:
    """A class that has a custom parser."""

    def __init__(self, left, right, name):
        self.left, self.right, self.name = left, right, name


def values(batches):
    """The numbers in batches, which are copied at once: later batches overwrite them."""
    return [int(row.flatten()[0]) for batch in batches for row in batch.clone()]
