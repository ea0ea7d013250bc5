"""Training.setAutomaticLossScaling: the options that say how the scale follows the gradients."""

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.optim.loss_scaling import AutomaticLossScaling

_PREFIX = "automaticLossScalingSettings."


def automatic_loss_scaling(options: Options) -> AutomaticLossScaling | None:
    """How the loss is scaled, or None if the optimiser's own number stays."""
    values = options._Popart.options
    if not values.get(f"{_PREFIX}enabled", False):
        return None
    if values.get(f"{_PREFIX}updatePeriod", 1) != 1:
        raise createPoptorchError(
            "automaticLossScalingSettings.updatePeriod can only be 1: the loss scale is looked at"
            " in each step."
        )
    default = AutomaticLossScaling()
    return AutomaticLossScaling(
        float(values.get(f"{_PREFIX}binEdgeLocation", default.bin_edge)),
        float(values.get(f"{_PREFIX}thresholdUpperCountProportion", default.threshold)),
    )
