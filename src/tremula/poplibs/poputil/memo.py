"""Planning once: pure functions of arrays remember results by the contents of their arguments."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from tremula.poplar.tensors.layout import key_bytes

# Layers repeat soon after each other; keeping more would only fill memory.
N_REMEMBERED = 64
MAX_REMEMBERED_BYTES = 2**27  # of one function: a gather of millions of rows has results of 2^26
# Plans with columns of megabytes: ResNet-50 has 160 in training, and a sweep over models no end.
N_PLANS = 256
P = ParamSpec("P")
R = TypeVar("R")


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Let a pure function of arrays, tuples of them and hashable values remember its results.

    The arrays of a result are shared between calls, so they become read-only.
    """
    results: OrderedDict[bytes, R] = OrderedDict()
    sizes: dict[bytes, int] = {}

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        digest = hashlib.sha1(usedforsecurity=False)
        _add((args, tuple(sorted(kwargs.items()))), digest)
        key = digest.digest()
        if key in results:
            results.move_to_end(key)
            return results[key]
        result = results[key] = function(*args, **kwargs)
        _freeze(result)
        sizes[key] = _n_bytes(result)
        while len(results) > N_REMEMBERED or sum(sizes.values()) > MAX_REMEMBERED_BYTES:
            del sizes[results.popitem(last=False)[0]]
        return result

    return wrapper


def _add(value: object, digest: "hashlib._Hash") -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(key_bytes(value))
    elif isinstance(value, tuple | list):
        digest.update(f"({len(value)}".encode())
        for part in value:
            _add(part, digest)
    else:
        digest.update(f"{type(value).__name__} {value!r};".encode())


def _freeze(value: object) -> None:
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, tuple | list):
        for part in value:
            _freeze(part)


def _n_bytes(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple | list):
        return sum(_n_bytes(part) for part in value)
    return 0
