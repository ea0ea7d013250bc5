"""All shims of `tremula run --port`, and the page docs/porting-shims.md made of them."""

from tremula.commands.port import library_age, python_age
from tremula.commands.port.shims import Shim

SHIMS: tuple[Shim, ...] = (*python_age.SHIMS, *library_age.SHIMS)

_HEAD = """# What `tremula run --port` adds

Scripts of a few years ago use names that libraries have dropped since. `tremula run --port
script.py` adds them while the script runs; nothing is added without `--port`. Where a library still
has a name, it stays, except for the rows marked *replaced*. [Porting](porting.md) says what else
such scripts need.

| name | reason |
|---|---|
"""


def markdown() -> str:
    """The page docs/porting-shims.md: one row for each reason."""
    rows: dict[tuple[str, bool], list[str]] = {}
    for shim in SHIMS:
        replaces = getattr(shim, "replaces", False)
        rows.setdefault((shim.reason, replaces), []).append(shim.shown)
    lines = [
        f"| {', '.join(shown)}{' (replaced)' if replaces else ''} | {reason} |\n"
        for (reason, replaces), shown in rows.items()
    ]
    return _HEAD + "".join(lines)
