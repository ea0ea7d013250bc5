"""Weights of a session on their ways: device, host, arrays of a script, and model files."""

import os

from tremula.base.storage.atomic_file import write_bytes
from tremula.frontends.popart.data_flow import PyWeightsIO
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.model_files import read_model
from tremula.frontends.popart.sessions.engine import SessionEngine
from tremula.frontends.popart.sessions.setup import Model
from tremula.frontends.popart.sessions.weights import STATE_PREFIXES, written_model


class WeightTransfers:
    """Copies weights and states of the optimiser between where they are stored."""

    def __init__(self, engine: SessionEngine):
        self._engine, self._setup = engine, engine.setup
        self._original = engine.planned.original

    def to_device(self) -> None:
        """Host → device."""
        self._engine.program.to_device()

    def to_host(self) -> None:
        """Device → host."""
        self._engine.program.to_host()

    def from_arrays(self, arrays: PyWeightsIO) -> None:
        """Arrays → host."""
        self._engine.program.weights.write_from(arrays)

    def to_arrays(self, arrays: PyWeightsIO) -> None:
        """Host → arrays, with states of the optimiser where they are named."""
        program = self._engine.program
        wants_states = any(id.startswith(STATE_PREFIXES) for id in arrays.weights)
        states = program.states() if wants_states and self._setup.is_training else {}
        program.weights.read_into(arrays, states)

    def from_model(self, source: Model, *, ignores_others: bool) -> None:
        """Initialisers of a model → host."""
        self._engine.program.weights.reset(read_model(source), ignores_others=ignores_others)

    def to_file(self, filename: str | os.PathLike) -> None:
        """Device → host → a model file, with the states of the optimiser."""
        program = self._engine.program
        program.to_host()
        hides = self._setup.options.disableOptimizerStateTensorStreams
        states = {} if hides or not self._setup.is_training else program.states()
        model = written_model(self._original, program.weights, states)
        write_bytes(filename, model.SerializeToString())

    def move_external(self, source: str, target: str) -> None:
        """Model files name another file for the weights that they store in `source`."""
        for tensor in self._original.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location" and entry.value == source:
                    entry.value = target

    def check_broadcast(self, root: int) -> None:
        """Raise where weights of one process would have to reach others."""
        if self._setup.options.enableDistributedReplicatedGraphs:
            raise popart_exception(
                f"broadcastWeights({root}) between processes is not supported: read the weights"
                " with readWeights, send them with torch.distributed, and use writeWeights"
            )
