"""The PopTorch API: options, data, blocks, optimisers and the executor of wrapped models."""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError(
        "PopTorch needs PyTorch, which is not installed: pip install 'tremula[torch]'"
    )
