"""Optimum Graphcore: transformers' trainers, pipelines and generation, on PopTorch."""

from tremula.base.requirements import require

require("optimum.graphcore", "optimum")
