"""poptorch._args_parser: arguments of models, and parsers for classes of the user."""

from tremula.frontends.poptorch.inputs.arguments import (
    ArgsParser,
    ICustomArgParser,
    registerCustomArgParser,
)

__all__ = ["ArgsParser", "ICustomArgParser", "registerCustomArgParser"]
