"""Exceptions of PopXL that are not Python's own."""


class UndefinedValue(Exception):
    """Something was asked of a tensor that is not known, such as the chip of a variable."""
