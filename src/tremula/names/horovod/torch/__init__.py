"""horovod.torch: what processes compute together, on torch.distributed."""

from tremula.frontends.poptorch.collectives import *  # noqa: F403 - all its names are public
