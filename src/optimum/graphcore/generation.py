"""Generation with a compiled step."""

from tremula.frontends.optimum.generation.mixin import IPUGenerationMixin

__all__ = ["IPUGenerationMixin"]
