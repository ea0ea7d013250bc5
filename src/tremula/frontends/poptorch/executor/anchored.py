"""Tensors inside a model by name: which there are, and the values of anchored ones."""

from torch import Tensor

from tremula.frontends.poptorch.executor.compiled import Anchor, CompiledModel
from tremula.frontends.poptorch.optim.names import ipu_param_names
from tremula.frontends.poptorch.optim.state import OptimizerState
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.run.tensor_names import LOSS_SCALE


def tensor_names(compiled: CompiledModel | None) -> list[str]:
    """Names of all tensors that can be anchored."""
    assert compiled is not None, (
        "Tensor names are only available after the model has been compiled."
    )
    rule = compiled.rule
    names = compiled.program.compiled.names.all(rule is not None)
    return names if rule is None else [*names, *ipu_param_names(rule)]


class AnchoredValues:
    """The values of anchored tensors in the last call."""

    def __init__(self, options: Options):
        self._options = options
        self._values: dict[str, Tensor] = {}

    def store(
        self, compiled: CompiledModel, outputs: list[Tensor], state: OptimizerState | None
    ) -> None:
        """Take those that the call returned, and read the others from the device."""
        values = iter(outputs)
        for anchor in compiled.anchors:
            value = next(values) if anchor.is_output else _read(anchor, compiled, state)
            self._values[anchor.short_name] = value

    def value(self, short_name: str) -> Tensor:
        """Of one of them."""
        anchored = self._options.anchored_tensors
        assert short_name in anchored, (
            f"{short_name!r} is not anchored: call Options.anchorTensor; anchored are "
            f"{', '.join(anchored) or 'none'}"
        )
        assert short_name in self._values, f"{short_name!r} is known after the first call"
        return self._values[short_name]


def _read(anchor: Anchor, compiled: CompiledModel, state: OptimizerState | None) -> Tensor:
    """A tensor that the device holds after a call: an updated weight, or a hyperparameter."""
    index = compiled.program.compiled.names.updated.get(anchor.long_name)
    if index is not None:
        value = compiled.program.session.read_weights()[0][index]
        return value.detach().to("cpu", copy=True)
    assert state is not None, "only training has a loss scale and hyperparameters"
    if anchor.long_name == LOSS_SCALE:
        return state.loss_scaling()
    return state.params()[anchor.long_name]
