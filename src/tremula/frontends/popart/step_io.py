"""Arrays and callbacks between a script and a step."""

from collections.abc import Callable, Mapping

import numpy as np

from tremula.frontends.popart.exceptions import popart_exception


class PyStepIO:
    """Inputs of a step by id, and the arrays that receive its anchors."""

    def __init__(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]):
        self.inputs = {id: np.asarray(array) for id, array in inputs.items()}
        self.outputs = dict(outputs)
        self.has_asserts = True

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Whether arrays are checked."""
        self.has_asserts = bool(enable)


class PyStepIOCallback:
    """Functions that give inputs and take outputs, one micro-batch at a time.

    `input_callback(id, is_prefetch)` gives an array, or None while there is none to read ahead;
    `output_callback(id)` gives an array to be filled. The others are told that a transfer ended.
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], np.ndarray],
        input_complete_callback: Callable[[str], object],
        output_callback: Callable[[str], np.ndarray],
        output_complete_callback: Callable[[str], object],
    ):
        self.input, self.input_complete = input_callback, input_complete_callback
        self.output, self.output_complete = output_callback, output_complete_callback


class PyWeightsIO:
    """Arrays for weights by id: read from, or written to."""

    def __init__(self, weights: Mapping[str, np.ndarray]):
        self.weights = dict(weights)

    def weight(self, id: str) -> np.ndarray:
        """The array of a weight."""
        if id not in self.weights:
            raise popart_exception(f"No array for the weight {id!r} in this PyWeightsIO")
        return self.weights[id]
