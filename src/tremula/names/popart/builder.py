"""Builders of PopART, by the path of its Python file."""

from tremula.frontends.popart.builder.builder import Builder

__all__ = ["Builder"]
