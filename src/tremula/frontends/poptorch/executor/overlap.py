"""What set_overlap_for_input and set_overlap_for_output ask of a model and its options."""

from collections import Counter

from torch import fx

from tremula.frontends.poptorch.enums import OutputMode, OverlapMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.strategies import PipelinedExecution
from tremula.ir.nodes import schema_name
from tremula.ir.step import INPUT, OUTPUT, CapturedStep

_MARK = "tremula::overlap"


def check_overlap(step: CapturedStep, options: Options) -> None:
    """Raise if a tensor is marked for overlap that cannot be, or if the options forbid it."""
    marks = [node for node in step.graph.nodes if schema_name(node) == _MARK]
    marks = [node for node in marks if node.args[1] != OverlapMode.NoOverlap.value]
    if not marks:
        return
    _check_options(options)
    _check_inputs(step, [node for node in marks if not node.args[2]])
    _check_outputs(step, [node for node in marks if node.args[2]])


def _check_options(options: Options) -> None:
    if isinstance(options._execution_strategy, PipelinedExecution):
        raise createPoptorchError(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only"
            " one IPU, please switch to poptorch.ShardedExecution."
        )
    if not options.TensorLocations.exists("numIOTiles"):
        raise createPoptorchError(
            "No IO tiles allocated. You must allocate at least 32 IO tiles using"
            " poptorch.Options().TensorLocations.numIOTiles."
        )
    mode = OutputMode(options.output_mode)
    if mode not in (OutputMode.All, OutputMode.Sum):
        raise createPoptorchError(
            f"Unsupported output mode for overlapped IO: {mode.name}. Use"
            " poptorch.OutputMode.All or poptorch.OutputMode.Sum."
        )


def _check_inputs(step: CapturedStep, marks: list[fx.Node]) -> None:
    places = {
        node: slot.index
        for slot, node in zip(step.inputs, step.placeholders(), strict=True)
        if slot.kind == INPUT
    }
    for mark in marks:
        source = mark.args[0]
        if source not in places:
            raise createPoptorchError(
                "poptorch.set_overlap_for_input applied on a node which is not a tensor input to"
                " the model."
            )
        if len(source.users) > 1:
            raise createPoptorchError(
                "poptorch.set_overlap_for_input must be the only op applied to an input. This is"
                f" not the case for input {places[source]} to the model."
            )


def _check_outputs(step: CapturedStep, marks: list[fx.Node]) -> None:
    results = zip(step.outputs, step.results(), strict=True)
    returned = Counter(node for slot, node in results if slot.kind == OUTPUT)
    for mark in marks:
        if returned[mark] > 1:
            raise createPoptorchError(
                "poptorch.set_overlap_for_output cannot be used with a tensor that is returned"
                " twice. Return it once."
            )
        if not returned[mark]:
            raise createPoptorchError(
                "poptorch.set_overlap_for_output applied on a node which is not a tensor output to"
                " the model."
            )
