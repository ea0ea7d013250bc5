"""Optimum Graphcore: transformers' trainers, pipelines and generation, on PopTorch."""

from importlib.util import find_spec

if find_spec("transformers") is None or find_spec("accelerate") is None:
    raise ImportError(
        "optimum.graphcore needs transformers and accelerate, which are not installed: "
        "pip install 'tremula[optimum]'"
    )
