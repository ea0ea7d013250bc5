"""Methods that models of a scope have besides Keras's: accumulation, callbacks, reports."""

from typing import TYPE_CHECKING, Any

import keras

from tremula.base.errors import suggest
from tremula.frontends.keras.enums import (
    GradientAccumulationReductionMethod,
    ReplicatedMetricReductionMethod,
)
from tremula.frontends.keras.errors import refuse
from tremula.frontends.keras.options import REDUCTIONS, ModelOptions, options_of

if TYPE_CHECKING:
    from tremula.compiler.report.report import Report


def set_gradient_accumulation_options(
    self: keras.Model,
    gradient_accumulation_steps_per_replica: int,
    gradient_accumulation_reduction_method: Any = "sum",  # noqa: ANN401 - a name or a choice
    **_details: Any,  # noqa: ANN401 - of memory, which a model of this machine does not have
) -> None:
    """Update weights once for so many batches, by the sum or mean of their gradients."""
    options, n = _options(self), gradient_accumulation_steps_per_replica
    if not isinstance(n, int) or n < 1:
        raise refuse(
            f"gradient_accumulation_steps_per_replica must be a whole number of at least 1;"
            f" got {n!r}."
        )
    method = gradient_accumulation_reduction_method
    name = method.name if isinstance(method, GradientAccumulationReductionMethod) else str(method)
    if name.lower() not in REDUCTIONS:
        raise refuse(
            f"there is no gradient_accumulation_reduction_method {name!r}.",
            hint=suggest(name.lower(), REDUCTIONS),
        )
    options.n_accumulation, options.reduction = n, name.lower()


def set_asynchronous_callbacks(self: keras.Model, asynchronous: bool = False) -> None:
    """Call callbacks of batches for every batch, also where several run in one execution."""
    _options(self).asynchronous_callbacks = bool(asynchronous)


def set_replication_options(
    self: keras.Model,
    replicated_metric_reduction_method: Any = "NONE",  # noqa: ANN401
) -> None:
    """How metrics of replicas combine: counts of all replicas are added up, whatever is said."""
    _options(self)
    method = replicated_metric_reduction_method
    name = method.name if isinstance(method, ReplicatedMetricReductionMethod) else str(method)
    known = ReplicatedMetricReductionMethod.__members__
    if name.upper() not in known:
        raise refuse(
            f"there is no replicated_metric_reduction_method {name!r}.",
            hint=suggest(name.upper(), known),
        )


def ipu_report(self: keras.Model) -> "Report":
    """Cycles and memory, on tiles, of the step that ran last."""
    options = _options(self)
    if options.last is None:
        raise refuse(
            f"{self.name} has not run yet.", hint="call fit, evaluate or predict before ipu_report"
        )
    return options.last.report()


def _options(model: keras.Model) -> ModelOptions:
    options = options_of(model)
    if options is None:
        raise refuse(
            f"{model.name} is a plain Keras model: it was built outside IPUStrategy.scope().",
            hint="build it inside `with ipu.ipu_strategy.IPUStrategy().scope():`",
        )
    return options


METHODS = (
    set_gradient_accumulation_options,
    set_asynchronous_callbacks,
    set_replication_options,
    ipu_report,
)


def inject() -> None:
    """Give all Keras models these methods; those of plain models say what is missing."""
    for method in METHODS:
        setattr(keras.Model, method.__name__, method)
