"""TOML from outside: Python's reader, with one kind of error for whatever a text may be."""

import tomllib
from typing import Any


def loads(text: str) -> dict[str, Any]:
    """The tables of a text; tomllib.TOMLDecodeError says what is wrong with it.

    `tomllib.loads` gives up on deep nesting and on numbers of thousands of digits with others.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from None
