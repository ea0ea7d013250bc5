"""Errors of the compiler and the machine as those of a front end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tremula.base.errors import PoplarError


@contextmanager
def translated_errors(
    own: type[PoplarError] | tuple[type[PoplarError], ...],
    translate: Callable[[PoplarError], PoplarError],
) -> Iterator[None]:
    """Inside, errors other than `own` become what `translate` returns, caused by the original."""
    try:
        yield
    except own:
        raise
    except PoplarError as error:
        raise translate(error) from error
