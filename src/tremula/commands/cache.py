"""`tremula cache`: shows, checks, prunes and clears what is stored between runs."""

import argparse
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from tremula.base.errors import PoplarError
from tremula.base.storage import cache_contents
from tremula.base.storage.cache_contents import KINDS, CacheFile, CacheKind
from tremula.base.storage.cache_dir import cache_dir
from tremula.base.storage.checked_file import DAY_S
from tremula.commands.arguments import one_of, positive
from tremula.commands.progress import progress

_DEFAULT_DAYS = 30
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
ACTIONS = {
    "show": "list what is stored (the default)",
    "check": "look for damaged files; exit code 1 if there are any",
    "prune": "remove what was not used for long",
    "clear": "remove everything, or the kinds you name",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    parser.add_argument(
        "action", nargs="?", default="show", type=one_of(ACTIONS, "action"),
        metavar="|".join(ACTIONS), help="what to do (show)",
    )  # fmt: skip
    names = [kind.name for kind in KINDS]
    parser.add_argument(
        "kinds", nargs="*", type=one_of(names, "kind of file"), metavar="KIND",
        help=f"for clear: {', '.join(names)}; without one, all but data",
    )  # fmt: skip
    parser.add_argument(
        "--days", type=positive, help=f"for prune: unused for so long ({_DEFAULT_DAYS})"
    )
    parser.add_argument("--size", type=_size, help="for prune: leave at most this much, 500M say")
    parser.add_argument("--remove", action="store_true", help="for check: remove damaged files")
    parser.add_argument("--json", action="store_true", help="for show: print JSON")


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    if args.action == "check":
        return _check(args.remove)
    if args.action == "prune":
        days = _DEFAULT_DAYS if args.days is None and args.size is None else args.days
        return _removed(cache_contents.to_prune(days, args.size))
    if args.action == "clear":
        kinds = [k for k in KINDS if (k.name in args.kinds if args.kinds else k.is_remade)]
        return _removed([file for kind in kinds for file in cache_contents.files_of(kind)])
    _show(is_json=args.json)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Options of another action than the chosen one are errors, not ignored."""
    options = {
        "clear": {"KIND": args.kinds},
        "prune": {"--days": args.days, "--size": args.size},
        "check": {"--remove": args.remove},
        "show": {"--json": args.json},
    }
    for action, values in options.items():
        wrong = [name for name, value in values.items() if value and action != args.action]
        if wrong:
            raise PoplarError(
                f"{wrong[0]} belongs to `tremula cache {action}`, not to {args.action}.",
                hint="tremula cache --help",
            )


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a size, 500M or 2GB say, got {text[:40]!r}")
    return int(float(match[1]) * _UNITS[match[2]])


# -- actions ---------------------------------------------------------------------------------------


def _show(*, is_json: bool) -> None:
    files = {kind: cache_contents.files_of(kind) for kind in KINDS}
    if is_json:
        kinds = [_as_json(kind, of_kind) for kind, of_kind in files.items()]
        print(json.dumps({"folder": str(cache_dir()), "kinds": kinds}, indent=1))
        return
    print(f"{cache_dir()} ({_chosen_by()})")
    for kind, of_kind in files.items():
        if of_kind:
            print(f"  {kind.name:<9}{_summary(of_kind)}, {_last_use(of_kind)}: {kind.content}")
    print(f"  {'all':<9}{_summary([file for of_kind in files.values() for file in of_kind])}")


def _as_json(kind: CacheKind, files: list[CacheFile]) -> dict[str, Any]:
    n_bytes = sum(file.n_bytes for file in files)
    return {"name": kind.name, "content": kind.content, "files": len(files), "bytes": n_bytes}


def _chosen_by() -> str:
    if os.environ.get("TREMULA_CACHE_DIR"):
        return "from TREMULA_CACHE_DIR"
    is_default = not Path(os.environ.get("XDG_CACHE_HOME", "")).is_absolute()
    return "the default" if is_default else "from XDG_CACHE_HOME"


def _summary(files: list[CacheFile]) -> str:
    noun = "file" if len(files) == 1 else "files"
    return f"{len(files):>7,} {noun:<5} {sum(file.n_bytes for file in files) / 1e6:>10,.1f} MB"


def _last_use(files: list[CacheFile]) -> str:
    days = int((time.time() - max(file.used for file in files)) / DAY_S)
    return "used today" if days < 1 else f"used {days} day{'s' * (days > 1)} ago"


def _check(removes: bool) -> int:
    with progress("checking"):
        damaged = list(cache_contents.damaged_files())
    for file in damaged:
        print(f"damaged: {file.path}")
    if not damaged:
        print("all files are whole")
        return 0
    if removes:
        return _removed(damaged)
    print("Each is made again when it is needed; `tremula cache check --remove` removes them now.")
    return 1


def _removed(files: list[CacheFile]) -> int:
    n_files, n_bytes = cache_contents.remove(files)
    noun = "file" if n_files == 1 else "files"
    print(f"removed {n_files:,} {noun}, {n_bytes / 1e6:,.1f} MB")
    return 0
