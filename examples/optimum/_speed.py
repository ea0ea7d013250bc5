"""What a Pod4 would do, from the tile program's cycles."""

import torch

import poptorch
import tremula as tr
from optimum.graphcore import IPUConfig
from optimum.graphcore.modeling_utils import to_pipelined


def print_pod4(model, batch, what):
    """The modelled rate of one inference per call on four IPUs, layers split evenly."""
    spread = to_pipelined(model, IPUConfig(ipus_per_replica=4)).parallelize().eval()
    options = spread.ipu_config.to_options(for_inference=True).logCycleCount(True)
    executor = poptorch.inferenceModel(spread, options)
    with torch.no_grad():
        executor(**batch)
    n_rows = len(next(iter(batch.values())))
    rate = n_rows * tr.chip("bow").clock_hz / executor.cycleCount()
    print(f"On a Bow Pod4, modelled: {rate:,.0f} {what} per second")
    executor.destroy()
