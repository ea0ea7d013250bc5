"""A PopXL program as a session of PopART's: arrays by the ids of streams, weights by name."""

import numpy as np

from tremula.frontends.popart.data_flow import PyStepIO, PyWeightsIO
from tremula.frontends.popart.devices import DeviceInfo
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.registry import VIEWS
from tremula.frontends.popxl.run.session import Session


class GraphSession:
    """What `popart.InferenceSession.fromIr(ir, device)` returns."""

    def __init__(self, ir: Ir, device: DeviceInfo):
        self._session = Session(ir, device)
        self._session.__enter__()

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Nothing is left to do: the program compiles when it runs."""

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """Arrays for the streams of results, by id."""
        return {s.tensor_id: a for s, a in self._session.create_host_outputs().items()}

    def weightsFromHost(self) -> None:
        self._session.weights_from_host()

    def weightsToHost(self) -> None:
        self._session.weights_to_host()

    copyDeviceWeightsToHost = weightsToHost

    def run(self, stepio: PyStepIO, debugName: str = "") -> None:
        """Run the program once, on arrays by the ids of streams."""
        del debugName
        inputs = {s: stepio.inputs[s.tensor_id] for s in self._session.expected_inputs()}
        outputs = self._session.create_host_outputs()
        outputs.update({s: stepio.outputs[s.tensor_id] for s in outputs
                        if s.tensor_id in stepio.outputs})  # fmt: skip
        self._session.run_with_outputs(inputs, outputs)

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy variables into the arrays that are there for them, by id."""
        for id, array in weightsIo.weights.items():
            tensor = self._session.ir.main_graph.get_tensor(id)
            array[...] = self._session.get_tensor_data(tensor)  # type: ignore[arg-type]

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """New values of variables, by id."""
        for id, array in weightsIo.weights.items():
            tensor = self._session.ir.main_graph.get_tensor(id)
            self._session.write_variable_data(tensor, array)  # type: ignore[arg-type]


VIEWS["session"] = GraphSession
