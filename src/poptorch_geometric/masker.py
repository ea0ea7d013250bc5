"""Maskers, under the names that scripts import."""

from tremula.frontends.geometric.masker import LayerMasker, Masker, NoMasker, PreLayerMasker

__all__ = ["LayerMasker", "Masker", "NoMasker", "PreLayerMasker"]
