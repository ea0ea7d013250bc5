"""PopTorch Geometric: graphs of PyTorch Geometric in batches of one size, as static programs."""

from importlib.util import find_spec

if find_spec("torch_geometric") is None:
    raise ImportError(
        "PopTorch Geometric needs PyTorch Geometric, which is not installed: "
        "pip install 'tremula[geometric]'"
    )
