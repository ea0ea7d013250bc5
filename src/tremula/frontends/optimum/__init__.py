"""Optimum Graphcore: transformers' trainers, pipelines and generation, on PopTorch."""

from tremula.base.names import install as install_names
from tremula.base.requirements import require

require("optimum.graphcore", "optimum")
install_names()  # its modules are written against PopTorch's names
