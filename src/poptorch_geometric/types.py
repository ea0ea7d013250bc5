"""The parser of data objects, under the name that scripts import."""

from tremula.frontends.geometric.args_parser import PyGArgsParser, register_args_parsers

__all__ = ["PyGArgsParser", "registerCustomArgParsers"]

registerCustomArgParsers = register_args_parsers  # noqa: N816 — the name scripts know
