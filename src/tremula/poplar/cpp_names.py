"""Poplar's C++ names and what they are called here; docs/poplar-cpp.md is made from this table."""

from typing import NamedTuple


class CppName(NamedTuple):
    """One name of Poplar. `ours` is a path from `tremula`, empty if there is nothing like it."""

    theirs: str
    ours: str
    difference: str


# Each row: Poplar's name | the name here, from `tremula` on (empty: not there) | what differs.
# A row with one cell starts a section.
_TABLE = """
Devices
DeviceManager | DeviceManager | every device is modelled; without a partition the machine is a Pod16
DeviceManager::createDeviceManager | DeviceManager.create_device_manager |
DeviceManager::getDevices | DeviceManager.get_devices |
DeviceManager::getDevice | DeviceManager.get_device |
DeviceManager::getNumDevices | DeviceManager.n_devices | a property
DeviceManager::getChildDeviceIds | DeviceManager.get_child_device_ids |
Device | Device |
Device::getId | Device.id | a property
Device::getTarget | Device.target | a property
Device::attach | Device.attach | always true: a model is never busy
Device::isAttached | Device.is_attached | a property
Device::detach | Device.detach |
Device::reset | Device.reset | does nothing: `Engine.load` starts again
Device::getAttributes | Device.attributes | a property
Device::getDriverVersion | Device.driver_version | the version of Tremula
Device::getDriverIDs | Device.driver_ids | a property
Device::supportsRemoteBuffers | Device.supports_remote_buffers | a property
Device::hasGateway | Device.has_gateway | a property
Device::getNumaTopology | | the host is not modelled
Device::createVirtualDevice | Device.create_virtual_device |
Device::createCPUDevice | Device.create_cpu_device |
Device::createSimulatorDevice | Device.create_simulator_device | the model itself
IPUModel | IPUModel | fields are arguments: `IPUModel("ipu2", n_ipus=2, tiles_per_ipu=4)`
IPUModel::createDevice | IPUModel.create_device | takes no options; halves are always exact
IPUModel::numIPUs | IPUModel.n_ipus |
IPUModel::tilesPerIPU | IPUModel.tiles_per_ipu |
IPUModel::IPUVersion | IPUModel.version | also names of chips (`"bow"`) and chips of your own
IPUModel::compileIPUCode | | code sizes are estimated; there is no IPU code

Target
Target | Target | getters are properties
Target::getNumTiles | Target.n_tiles |
Target::getNumIPUs | Target.n_ipus |
Target::getTilesPerIPU | Target.tiles_per_ipu |
Target::getNumWorkerContexts | Target.n_worker_contexts |
Target::getBytesPerTile | Target.n_bytes_per_tile |
Target::getExchangeBytesPerCycle | Target.exchange_bytes_per_cycle |
Target::getTileClockFrequency | Target.tile_clock_hz |
Target::getDataPathWidth | Target.data_path_width_bits |
Target::getTypeSize | Target.type_size |
Target::getVectorWidth | Target.vector_width |
Target::getTargetType | Target.type |
Target::getTargetArchString | Target.arch |
Target::getTargetSystemString | Target.system | an object, not text
Target::createVirtualTarget | Target.virtual | a method of the target
Target::createIPUTarget | IPUModel.create_target | `IPUModel(arch, n_ipus).create_target()`
Target::createCPUTarget | Device.create_cpu_device | its `target`
Target::getNumConvUnits | Target.chip | this and all other constants of the chip: `target.chip`
TargetType | TargetType |

Graph
Graph | Graph |
Graph::getTarget | Graph.target | an attribute
Graph::addCodelets | Graph.add_codelets | also source text and Python classes; returns the names
Graph::hasCodelet | Graph.has_codelet |
Graph::addVariable | Graph.add_variable | also `mapping=`: "linear" or a tile
Graph::addConstant | Graph.add_constant | mapped to tile 0 by default
Graph::addConstantHalf | Graph.add_constant | with HALF and values, not bits
Graph::addReplicationIndexConstant | Graph.add_replication_index_constant |
Graph::addExternalVariable | | there are no modules to link
Graph::clone | Graph.clone | always in row-major order with the same mapping
Graph::cloneN | Graph.clone_n | by outer dimension
Graph::addComputeSet | Graph.add_compute_set |
Graph::addVertex | Graph.add_vertex | numbers for Inputs become constants; `tile=` maps it at once
Graph::addExternalExchangeVertex | | internal to Poplar
Graph::getNumVertices | Graph.n_vertices | a property
Graph::connect | Graph.connect |
Graph::setFieldSize | Graph.set_field_size |
Graph::getFieldSize | | fields have no limit of size here
Graph::getMaxFieldDim | | fields have no limit of size here
Graph::getMaxVertexFieldValue | | a value that does not fit is an error
Graph::setInitialValue | Graph.set_initial_value |
Graph::setInitialValueHalf | Graph.set_initial_value | with values, not bits
Graph::setPerfEstimate | Graph.set_perf_estimate |
Graph::getPerfEstimate | | a report has what was used
Graph::registerPerfEstimator | Graph.register_perf_estimator | called once for all vertices
Graph::createHostWrite | Graph.create_host_write | nothing is rearranged on the host
Graph::createHostRead | Graph.create_host_read | nothing is rearranged on the host
Graph::addHostToDeviceFIFO | Graph.add_host_to_device_fifo |
Graph::addDeviceToHostFIFO | Graph.add_device_to_host_fifo |
Graph::addRemoteBuffer | Graph.add_remote_buffer |
Graph::setTileMapping | Graph.set_tile_mapping |
Graph::getTileMapping | Graph.get_tile_mapping | columns of intervals, not a list per tile
Graph::getVariableTileMapping | Graph.get_tile_mapping |
Graph::getSortedContiguousRegions | sorted_contiguous_regions | a function of the tensor
Graph::reorderToSimplify | reorder_to_simplify | returns the new tensors
Graph::getSimplifyingRearranger | TensorRearranger | `TensorRearranger(tensor)`
Graph::findUnbroadcastTensor | unbroadcast |
Graph::createVirtualGraph | Graph.create_virtual_graph |
Graph::getTopLevelGraph | Graph.top | a property
Graph::convertTileToTopLevelGraphTile | Graph.to_top_level_tile |
Graph::convertTopLevelGraphTileToTile | Graph.from_top_level_tile |
Graph::convertVirtualTileToPhysicalTile | Graph.to_top_level_tile | numbers are the same
Graph::getReplicationFactor | Graph.replication_factor | an attribute
Graph::addFunction | Graph.add_function |
Graph::addFunctionBuffer | Graph.add_function_buffer |
Graph::addHostFunction | Graph.add_host_function |
Graph::outputVertexGraph | Graph.output_vertex_graph | a path or an open file
Graph::outputComputeGraph | Graph.output_compute_graph | a path or an open file
Graph::serialize | Graph.serialize | JSON, or the same deflated; it is not read back
Graph::serializeTensors | | tensors are views of a graph and live with it
VariableMappingMethod | VariableMappingMethod |
VertexRef | VertexRef | `vertex["field"]`
FieldRef | FieldRef | `vertex["field"][i]`
SerializationFormat | SerializationFormat |
ComputeSet | ComputeSet |

Tensor
Tensor | Tensor | getters are properties
Tensor::operator[] | Tensor.__getitem__ | also slices, and several indices at once
Tensor::index | Tensor.index |
Tensor::slice | Tensor.slice |
Tensor::slices | Tensor.slices |
Tensor::flatten | Tensor.flatten |
Tensor::reshape | Tensor.reshape |
Tensor::reshapePartial | Tensor.reshape_partial |
Tensor::dimShuffle | Tensor.dim_shuffle |
Tensor::dimShufflePartial | Tensor.dim_shuffle_partial |
Tensor::dimRoll | Tensor.dim_roll |
Tensor::transpose | Tensor.transpose |
Tensor::expand | Tensor.expand |
Tensor::squeeze | Tensor.squeeze |
Tensor::reverse | Tensor.reverse |
Tensor::subSample | Tensor.sub_sample |
Tensor::upsample | Tensor.upsample | REPEAT is the only method
Tensor::broadcast | Tensor.broadcast |
Tensor::reinterpret | Tensor.reinterpret |
Tensor::elementType | Tensor.type |
Tensor::numElements | Tensor.n_elems |
Tensor::dim | Tensor.dim |
Tensor::shape | Tensor.shape | a tuple
Tensor::rank | Tensor.rank |
Tensor::isContiguous | Tensor.is_contiguous |
Tensor::containsAliases | Tensor.contains_aliases |
Tensor::containsConstant | Tensor.contains_constant |
Tensor::isParallelWriteable | Tensor.is_parallel_writeable |
Tensor::getContiguousRegions | Tensor.contiguous_regions | a method
Tensor::getVarRegions | Tensor.var_regions | a method
Tensor::intersectsWith | Tensor.intersects_with |
Tensor::getMetadata | Tensor.metadata | None for types without
Tensor::hasMetadata | Tensor.metadata | `is not None`
Tensor::getDebugStr | Tensor.__repr__ |
Tensor::shapeToString | Tensor.shape |
Tensor::valid | | a tensor always is
concat | concat |
append | append |
TensorRearranger::rearrange | TensorRearranger.rearrange |
TensorRearranger::undoRearrangement | TensorRearranger.undo |
Interval | Interval | `begin` and `end` are attributes
Type | Type | `type.spelling` is C++'s name, as in names of vertices
FLOAT | FLOAT | and all other types, by the same names
copyFloatToDeviceHalf | | NumPy converts: `.astype(np.float16)`

Programs
program::Program | Program | the last positional argument may be a name, as a debug context
program::Sequence | Sequence |
program::Sequence::add | Sequence.add |
program::Execute | Execute |
program::Copy | Copy | a bool (dontOutline, optimiseMemory) changes nothing
program::Repeat | Repeat |
program::RepeatWhileTrue | RepeatWhileTrue |
program::RepeatWhileFalse | RepeatWhileFalse |
program::Loop | Loop |
program::If | If | the second program may be left out
program::Switch | Switch | cases: a dict or pairs
program::Switch::add | Switch.add |
program::Switch::switchWithBoundsChecking | Switch.with_bounds_checking |
program::Switch::switchWithUnreachableDefault | Switch.with_unreachable_default |
program::Call | Call |
program::Sync | Sync |
program::PrintTensor | PrintTensor |
program::WriteUndef | WriteUndef |
program::AssumeEqualAcrossReplicas | AssumeEqualAcrossReplicas |
program::CrossReplicaCopy | CrossReplicaCopy |
program::Block | Block |
program::Abort | Abort |
program::AbortOnCondition | AbortOnCondition |
program::ErrorProgram | ErrorProgram |
program::Program::isEmpty | Sequence.is_empty | of sequences, a property
program::dumpProgram | | set `TREMULA_DUMP` to a folder: every pass as text
PrintTensorFmt | PrintTensorFmt |
PrintTensorFmt::disableFormatting | PrintTensorFmt.disabled |
SyncType | SyncType |
cycleCount | cycle_count |
cycleStamp | cycle_stamp |
setFloatingPointBehaviour | set_floating_point_behaviour | flags are arguments
setStochasticRounding | set_stochastic_rounding |
getHwSeeds | get_hw_seeds |
setHwSeeds | set_hw_seeds |
DataStream | DataStream |
RemoteBuffer | RemoteBuffer |
Function | Function |
HostFunction | HostFunction |
ReplicatedStreamMode | ReplicatedStreamMode |
DebugContext | | names are texts, lines of your program are found by themselves
OptionFlags | | a dict

Compiling and running
compileGraph | compile_graph |
Executable | Executable |
Executable::serialize | Executable.serialize | to a stream; `save` writes a file
Executable::deserialize | Executable.deserialize | from a stream; `load` reads a file
Engine | Engine | of a graph and programs, or of an executable
Engine::load | Engine.load | the device may be left out
Engine::prepare | Engine.load |
Engine::deploy | Engine.load |
Engine::run | Engine.run | by index or name
Engine::loadAndRun | Engine.load_and_run |
Engine::stop | Engine.stop |
Engine::writeTensor | Engine.write_tensor | an array
Engine::readTensor | Engine.read_tensor | returns an array
Engine::connectStream | Engine.connect_stream | an array of chunks, repeated; or two addresses
Engine::connectStreamToCallback | Engine.connect_stream_to_callback |
Engine::connectHostFunction | Engine.connect_host_function |
Engine::copyToRemoteBuffer | Engine.copy_to_remote_buffer | data first, as in Poplar
Engine::copyFromRemoteBuffer | Engine.copy_from_remote_buffer | returns an array
Engine::listStreams | Engine.list_streams |
Engine::getEngineOptions | Engine.options | an attribute
Engine::setPrintStream | Engine.set_print_stream | what C++ codelets print while a program runs
Engine::setPrintTensorStream | Engine.set_print_tensor_stream | also the attribute `print_stream`
Engine::enableExecutionProfiling | Engine.enable_execution_profiling |
Engine::disableExecutionProfiling | Engine.disable_execution_profiling |
Engine::resetExecutionProfile | Engine.reset_execution_profile |
Engine::printProfileSummary | Engine.print_profile_summary | two options, see its text
Engine::getReport | Engine.get_report | as pva gives it, without a file
Engine::getTimeStamp | | use Python's clock, or a system trace
Engine::insertSimulatedError | | `vipu inject fault` breaks a partition: [the system](system.md)
StreamCallback | StreamCallback | or any function of an array
StreamCallback::fetch | StreamCallback.fetch |

Errors
poplar_error | errors.PoplarError | [all errors](errors.md) by both names
"""


def sections() -> dict[str, list[CppName]]:
    """The table, section by section."""
    result: dict[str, list[CppName]] = {}
    rows: list[CppName] = []
    for line in filter(None, _TABLE.splitlines()):
        cells = [cell.strip() for cell in line.split(" |")]
        if len(cells) == 1:
            rows = result.setdefault(cells[0], [])
        else:
            theirs, ours, difference = cells
            rows.append(CppName(theirs, ours, difference))
    return result


_HEAD = """# Poplar in C++ → Tremula in Python

Every class and method of Poplar's C++ interface, its name here, and what differs. In general:

* Names are snake_case; `num…` is `n_…`; getters without arguments are properties. Poplar's own
  spellings work, too, and there getters are called: `graph.addVariable`, `target.getNumTiles()`,
  `target.get_num_tiles()`, `tensor.num_elements()`.
* Lists of sizes are lists, option flags a dict, debug contexts a `name`. The last positional
  argument of every program may be its name, and where types tell arguments apart, Poplar's order is
  accepted.
* Everything is in `tremula`: `import tremula as tr`, then `tr.Graph`, `tr.Copy`.
* Libraries are in `tremula.poplibs`: `popops poplin popnn poprand poputil gcl`
  ([operations](ops.md)).
* C++ codelets run unchanged ([how](cpp-codelets.md)); vertices can also be written in Python.

```python
import tremula as tr

manager = tr.DeviceManager.create_device_manager()
device = next(d for d in manager.get_devices(n_ipus=1) if d.attach())
graph = tr.Graph(device)
v1 = graph.add_variable(tr.FLOAT, [4], "v1")
for i in range(4):
    graph.set_tile_mapping(v1[i], i)
c1 = graph.add_constant(tr.FLOAT, [4], [1.0, 1.5, 2.0, 2.5])
graph.create_host_read("v1-read", v1)
prog = tr.Sequence([tr.Copy(c1, v1), tr.PrintTensor("v1-debug", v1)], "main")
engine = tr.Engine(graph, prog)
engine.load(device)
engine.run(0)
assert engine.read_tensor("v1-read").tolist() == [1.0, 1.5, 2.0, 2.5]
```

The tables are made from `src/tremula/poplar/cpp_names.py`; `make docs` renews this page, and a test
checks that every name exists.
"""


def cpp_names_markdown() -> str:
    """The page docs/poplar-cpp.md."""
    parts = [_HEAD]
    for title, rows in sections().items():
        parts += [f"\n## {title}\n\n| Poplar | here | what differs |\n|---|---|---|\n"]
        for row in rows:
            ours = f"`{row.ours.replace('.__getitem__', '[…]').replace('.__repr__', ': repr')}`"
            parts.append(f"| `{row.theirs}` | {ours if row.ours else '–'} | {row.difference} |\n")
    return "".join(parts)
