"""popsolver: whole numbers that meet constraints and make an expression least."""

from tremula.base.names.argument_types import explain_arguments_of_methods
from tremula.poplibs.popsolver.model import (
    MAX_VALUE,
    Model,
    PriorityGroup,
    Solution,
    Variable,
)

__all__ = ["MAX_VALUE", "Model", "PriorityGroup", "Solution", "Variable"]

explain_arguments_of_methods(Model)
