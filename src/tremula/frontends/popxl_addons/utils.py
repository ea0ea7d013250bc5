"""Small helpers of the add-ons: ordered and checked dictionaries, timing of sections."""

import collections
import logging
import re
import sys
import time
import typing
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from types import ModuleType

import numpy as np

import popxl

Key = typing.TypeVar("Key")
Value = typing.TypeVar("Value")
Item = typing.TypeVar("Item")
logger = logging.getLogger()  # the root logger, as programs expect it


@contextmanager
def null_context() -> Iterator[None]:
    """A context that does nothing."""
    yield


def suffix_graph_name(name: str, suffix: str) -> str:
    """The name of a graph without its number, and a suffix: `f_subgraph(3)` → `f_suffix`."""
    return f"{re.sub(r'_subgraph[(][0-9]+[)]', '', name)}_{suffix}"


@contextmanager
def timer(title: str | None = None, log_to_wandb: bool = True) -> Iterator[None]:
    """Log how long a section takes, in minutes; also to the summary of an open W&B run.

    >>> with timer("Load the weights"):
    ...     pass
    """
    start = time.perf_counter()
    logger.info("Starting %s", title or "")
    yield
    minutes = (time.perf_counter() - start) / 60
    logger.info("%s: %.2f mins", f"{title} duration" if title else "Duration", minutes)
    run = _open_wandb_run() if log_to_wandb and title else None
    if run is not None and title is not None:
        run.summary[title.lower().replace(" ", "_") + "_mins"] = minutes


def _open_wandb_run() -> typing.Any:
    """The run that the script opened with Weights & Biases, if it uses it at all."""
    wandb = sys.modules.get("wandb")
    return getattr(wandb, "run", None)


def wandb_module() -> ModuleType:
    """Weights & Biases, which is not a dependency."""
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(
            "This needs Weights & Biases, which is not installed: pip install wandb"
        ) from error
    return wandb


class OrderedDict(collections.OrderedDict, MutableMapping[Key, Value]):  # type: ignore[misc]
    """A dictionary whose values can be read by position; prints one entry per line."""

    def idx(self, idx: int) -> Value:
        """The value at a position."""
        return list(self.values())[idx]

    def __repr__(self) -> str:
        lines = "".join(f"{key}: {value},\n" for key, value in self.items())
        return "{\n" + lines + "}" if lines else "{}"


class WeightsDict(MutableMapping[popxl.Variable, np.ndarray]):
    """Arrays by variable; each must have the variable's type and its shape on the host."""

    def __init__(self, *args: typing.Any, **kwargs: typing.Any):
        self.dict: dict[popxl.Variable, np.ndarray] = {}
        self.update(*args, **kwargs)

    def __getitem__(self, key: popxl.Variable) -> np.ndarray:
        return self.dict[key]

    def __setitem__(self, key: popxl.Variable, value: np.ndarray) -> None:
        dtype = popxl.dtype.as_dtype(value.dtype)
        if key.dtype != dtype:
            raise ValueError(f"{key}: tensor and weight dtypes do not equal {key.dtype} != {dtype}")
        if key.shape_on_host != value.shape:
            raise ValueError(
                f"{key}: tensor and weight shapes do not equal {key.shape_on_host} != {value.shape}"
            )
        self.dict[key] = value

    def __delitem__(self, key: popxl.Variable) -> None:
        del self.dict[key]

    def __len__(self) -> int:
        return len(self.dict)

    def __iter__(self) -> Iterator[popxl.Variable]:
        return iter(self.dict)

    def __repr__(self) -> str:
        return f"WeightsDict({self.dict})"


def overrides(cls: type, base_cls: type, method: str) -> bool:
    """Whether a class redefines a method of a parent class."""
    return getattr(cls, method) != getattr(base_cls, method)


def duplicate_items(iterable: Iterable[Item]) -> list[Item]:
    """Items that occur more than once, in the order they are first seen.

    >>> duplicate_items([7, 5, 5, 1, 2, 7])
    [7, 5]
    """
    return [item for item, count in collections.Counter(iterable).items() if count > 1]
