"""Generation with a compiled step."""

from tremula.frontends.optimum.generation.mixin import IPUGenerationMixin, generating

__all__ = ["IPUGenerationMixin", "generating"]
