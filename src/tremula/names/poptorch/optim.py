"""The optimisers, under the name that PopTorch scripts import."""

from tremula.frontends.poptorch.optim.optimizers import (
    LAMB,
    SGD,
    Adam,
    AdamW,
    Optimizer,
    RMSprop,
    VariableAttributes,
)

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]
