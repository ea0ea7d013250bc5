"""Streams between the host and a step: inputs of each micro-batch, outputs, overlapped or not."""

from torch import fx

from tremula.ir.lowering.program.overlap import Overlap, overlap_modes
from tremula.ir.lowering.program.schedule import BuiltProgram
from tremula.ir.lowering.program.values import StepValues, io_graph
from tremula.ir.step import StepSlot
from tremula.poplar.programs import Copy, Program, Sequence, Sync, SyncType, Waits
from tremula.poplar.tensors.tensor import Tensor


class HostTransfers:
    """Adds a stream for each input and output to a built program."""

    def __init__(self, values: StepValues, built: BuiltProgram, waits: Waits):
        self.values = values
        self.graph = values.graph
        self.options = values.options
        self.built = built
        self.waits = waits
        self.overlap = Overlap()
        self.overlap_modes = overlap_modes(values.step) if self.options.n_io_tiles else {}

    def add_input(self, slot: StepSlot, node: fx.Node, tensor: Tensor, reads: Sequence) -> None:
        """Read an input from its stream in `reads`, or ahead on tiles for I/O."""
        if self.options.has_synthetic_data:
            self.graph.set_initial_value(tensor, 0)
            return
        handle = f"input:{slot.index}"
        stream = self.graph.add_host_to_device_fifo(
            handle, tensor.type, max(tensor.n_elems, 1), buffering_depth=self._depth
        )
        self.built.inputs.append(handle)
        if tensor.n_elems and node in self.overlap_modes:
            waiting = self._on_io_tiles(tensor, self.values.chip_of[node])
            self.overlap.loads.add(Copy(stream, waiting, waits=Waits.NONE))
            self.overlap.takes.add(Copy(waiting, tensor.flatten()))
        elif tensor.n_elems:  # a tensor without elements has nothing to fetch
            reads.add(Copy(stream, tensor.flatten(), waits=self.waits))

    def add_output(self, slot: StepSlot, node: fx.Node, value: Tensor, gives: Sequence) -> None:
        """Write an output to its stream in `gives`, or later from tiles for I/O."""
        if self.options.has_synthetic_data:
            return
        handle = f"{slot.kind}-out:{slot.index}"
        stream = self.graph.add_device_to_host_fifo(
            handle, value.type, max(value.n_elems, 1), buffering_depth=self._depth
        )
        self.built.outputs.append((slot, handle))
        if value.n_elems and node in self.overlap_modes:
            waiting = self._on_io_tiles(value, self.values.chip_of[node])
            self.overlap.puts.add(Copy(value.flatten(), waiting))
            self.overlap.stores.add(Copy(waiting, stream, waits=Waits.NONE))
        elif value.n_elems:
            gives.add(Copy(value.flatten(), stream, waits=self.waits))

    @property
    def _depth(self) -> int:
        return 1 + self.options.prefetch_depth

    def _on_io_tiles(self, like: Tensor, chip: int) -> Tensor:
        graph = io_graph(self.graph, self.options.n_io_tiles, chip)
        return graph.add_variable(like.type, [like.n_elems], "waiting", mapping="linear")

    def called(self, program: Program) -> Program:
        """What a call runs: a host that works ahead lets it wait once, at its beginning."""
        has_streams = bool(self.built.inputs or self.built.outputs)
        if not has_streams or not self.options.prefetch_depth:
            return program
        return Sequence(Sync(SyncType.HOST, name="call"), program)
