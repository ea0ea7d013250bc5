"""Shrinking: from a case that fails to a small one that fails alike.

Works on any plain JSON: parts of lists are removed, a part is replaced by a similar part inside it,
numbers move towards zero. A candidate counts if it fails with the same signature; a candidate that
breaks the rules of its kind is illegal, and does not.
"""

import json
import math
import time
from collections.abc import Iterator
from copy import deepcopy

from tools.fuzz.case import FAILED, Case, Kind, examine

Path = tuple[str | int, ...]


def shrink(kind: Kind, case: Case, signature: str, seconds: float = 60) -> Case:
    """The smallest case with this signature that was reached in the time."""
    deadline = time.monotonic() + seconds
    tried: set[str] = set()
    improved = True
    while improved and time.monotonic() < deadline:
        improved = False
        for candidate in _candidates(case):
            if time.monotonic() > deadline:
                break
            text = json.dumps(candidate, sort_keys=True)
            if text in tried:
                continue
            tried.add(text)
            outcome = examine(kind, deepcopy(candidate))
            if outcome.status == FAILED and outcome.signature == signature:
                case, improved = candidate, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, those that remove most first."""
    paths = sorted(_paths(case), key=lambda path: (len(path), path and str(path[-1])))
    for path in paths:
        part = _at(case, path)
        if isinstance(part, list):
            yield from _shorter_lists(case, path, part)
        elif isinstance(part, dict):
            yield from _hoisted(case, path, part)
    for path in paths:
        part = _at(case, path)
        if isinstance(part, bool):
            if part:
                yield _replaced(case, path, False)
        elif isinstance(part, int | float):
            yield from (_replaced(case, path, value) for value in _smaller_numbers(part))


def _shorter_lists(case: Case, path: Path, part: list) -> Iterator[Case]:
    size = len(part)
    while size:
        for start in range(0, len(part), size):
            yield _replaced(case, path, part[:start] + part[start + size :])
        size //= 2


def _hoisted(case: Case, path: Path, part: dict) -> Iterator[Case]:
    """A node of a tree replaced by a node inside it (both have a `do`)."""
    if "do" not in part or not path:
        return
    for inner in _paths(part):
        value = _at(part, inner)
        if inner and isinstance(value, dict) and "do" in value:
            yield _replaced(case, path, value)


def _smaller_numbers(number: float) -> Iterator[int | float]:
    if not math.isfinite(number):
        yield 0
        return
    if number not in (0, 1):
        yield 0
        yield 1
    elif number == 1:
        yield 0
    if isinstance(number, float) and number != int(number or 0):
        yield float(int(number))
    elif abs(number) > 3:
        yield int(number / 2)
        yield number - 1 if number > 0 else number + 1


def _paths(part: object, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _paths(value, (*path, key))
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from _paths(value, (*path, index))


def _at(part: object, path: Path) -> object:
    for key in path:
        part = part[key]  # type: ignore[index]
    return part


def _replaced(case: Case, path: Path, value: object) -> Case:
    result = deepcopy(case)
    if not path:
        return deepcopy(value)  # type: ignore[return-value]
    parent = _at(result, path[:-1])
    parent[path[-1]] = deepcopy(value)  # type: ignore[index]
    return result
