"""TOML from outside: Python's reader, with one kind of error for whatever a text may be."""

import tomllib
from typing import Any

N_BITS = 64


def loads(text: str) -> dict[str, Any]:
    """The tables of a text; tomllib.TOMLDecodeError says what is wrong with it.

    `tomllib.loads` gives up on deep nesting and on numbers of thousands of digits with others, and
    reads longer ones in hexadecimal, which Python then cannot write into a message.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from None
    _check_numbers(tables, "")
    return tables


def _check_numbers(value: object, name: str) -> None:
    """Whole numbers have at most 64 bits, as TOML says."""
    if isinstance(value, dict):
        for key, part in value.items():
            _check_numbers(part, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for part in value:
            _check_numbers(part, name)
    elif isinstance(value, int) and value.bit_length() > N_BITS:
        raise tomllib.TOMLDecodeError(f"{name} is a whole number of more than {N_BITS} bits")
