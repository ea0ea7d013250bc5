"""Keyword options of operations: a name that the operation does not know is an error."""

from collections.abc import Mapping

from tremula.base.errors import InvalidOption, suggest
from tremula.base.source import user_source


def check_options(options: Mapping[str, object], known: type, what: str) -> None:
    """Refuse options that a TypedDict does not name."""
    for name in options:
        if name not in known.__annotations__:
            raise InvalidOption(
                f"{what} has no option {name!r}.",
                source=user_source(),
                hint=suggest(name, known.__annotations__),
            )


def check_memory_proportion(proportion: float) -> None:
    """Refuse a share of memory that is less than nothing."""
    if not proportion >= 0:
        raise InvalidOption(
            f"available_memory_proportion is {proportion}, expected 0 or more.",
            source=user_source(),
            hint="0.6 is the default: 0.6 of a tile's memory for temporary data",
        )
