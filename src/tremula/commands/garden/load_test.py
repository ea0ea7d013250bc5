"""`tremula load-test URL`: ask a server from many connections, and take times."""

import argparse
import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np

from tremula.base.errors import InvalidOption, RuntimeFailure, suggest
from tremula.base.requirements import require_for_command
from tremula.base.storage.strict_json import JsonObject
from tremula.commands.arguments import whole
from tremula.commands.progress import progress

_T = TypeVar("_T")
_BETWEEN_S = 0.2  # of two looks at the clock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="of the server: http://127.0.0.1:8000")
    parser.add_argument("model", help="its name")
    parser.add_argument("--seconds", type=whole(1, 86_400), default=10, help="how long (10)")
    parser.add_argument("--connections", type=whole(1, 10_000), default=32, help="at once (32)")
    parser.add_argument("--rate", type=whole(1), help="requests per second (as fast as possible)")
    parser.add_argument("--rows", type=whole(1, 1 << 16), default=1, help="of a request (1)")
    parser.add_argument("--json", action="store_true", help="tensors as JSON instead of bytes")


def run(args: argparse.Namespace) -> int:
    require_for_command("tremula load-test", "serve")
    from tremula.serving.load import load_test

    inputs = _random_inputs(_metadata(args.url, args.model), args.rows)
    work = load_test(
        args.url, args.model, inputs, seconds=args.seconds, n_connections=args.connections,
        rate=args.rate, is_binary=not args.json,
    )  # fmt: skip
    with progress("asking") as report_share:
        result = asyncio.run(_timed(work, args.seconds, report_share))
    print(f"{result.rate:,.1f} requests/s, {result.rate * args.rows:,.1f} rows/s")
    for percent in (50, 90, 99, 100):
        print(f"  {percent:>3} % within {result.percentile_s(percent) * 1000:,.2f} ms")
    for status, n in sorted(result.by_status.items()):
        print(f"  status {status}: {n:,}")
    if result.n_broken:
        print(f"  no answer: {result.n_broken:,}")
    return 0 if result.n_good else 1


async def _timed(
    work: Coroutine[Any, Any, _T], seconds: float, report_share: Callable[[float], None]
) -> _T:
    """What the work returns; meanwhile the share of its seconds that have gone by is reported."""
    task, began_s = asyncio.ensure_future(work), time.monotonic()
    while not task.done():
        report_share((time.monotonic() - began_s) / seconds)
        await asyncio.wait([task], timeout=_BETWEEN_S)
    return await task


def _metadata(url: str, model: str) -> JsonObject:
    if not url.startswith("http://"):
        raise InvalidOption(
            f"{url!r} is not the address of a server.", hint="http://127.0.0.1:8000"
        )
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/v2/models/{model}", timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeFailure(f"{url} says: {error.read().decode(errors='replace')}") from None
    except (OSError, ValueError) as error:
        raise RuntimeFailure(f"no server of the V2 protocol answers at {url}: {error}") from None


def _random_inputs(metadata: JsonObject, n_rows: int) -> dict[str, np.ndarray]:
    from tremula.serving.tensors import DATATYPES

    types = {name: dtype for dtype, name in DATATYPES.items()}
    random = np.random.default_rng(0)
    result = {}
    for tensor in metadata["inputs"]:
        if tensor["datatype"] not in types:
            raise InvalidOption(
                f"input {tensor['name']!r} is {tensor['datatype']}, which a load test cannot make.",
                hint=suggest(tensor["datatype"], types),
            )
        dtype = types[tensor["datatype"]]
        shape = [n_rows if size < 0 else size for size in tensor["shape"]]
        made = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        result[tensor["name"]] = made.astype(dtype)
    return result
