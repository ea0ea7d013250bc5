"""outlining: parts of a program that are alike become one function that is called many times."""

from tremula.poplibs.outlining.outline import Outlined, outlined

__all__ = ["Outlined", "outlined"]
