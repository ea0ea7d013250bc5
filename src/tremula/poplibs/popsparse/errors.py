"""What goes wrong with sparse matrices, by name."""

from tremula.base.errors import PoplarError


class SparsityError(PoplarError):
    """A sparse matrix that contradicts itself, or what it is used for."""
