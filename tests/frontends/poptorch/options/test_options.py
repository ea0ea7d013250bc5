"""poptorch.Options: values, checks, freezing, copies, numbers of chips, engine options."""

import copy
import pickle

import pytest
import torch

import poptorch
from poptorch import poptorch_core
from tremula.base.errors import GraphMemoryAllocationError
from tremula.compiler.compile import OutOfMemoryWarning
from tremula.frontends.poptorch.executor.placement import n_ipus_needed


def test_defaults(opts):
    """Options that were not set have PopTorch's defaults."""
    assert opts.device_iterations == opts.replication_factor == opts.input_group_size == 1
    assert opts.input_cgt == poptorch.CommGroupType.Consecutive
    assert opts.output_mode == poptorch.OutputMode.Default
    assert opts.output_return_period == 1
    assert opts.anchored_tensors == {}
    assert opts.available_memory_proportion == {}
    assert not opts.auto_round_num_ipus
    assert opts.broadcast_buffers
    assert opts.connection_type == poptorch.ConnectionType.Always
    assert opts.sync_pattern == poptorch.SyncPattern.Full
    assert opts.log_dir == "."
    assert opts.max_repeat_logs == 4
    assert isinstance(opts.execution_strategy, poptorch.PipelinedExecution)
    assert opts.Training.gradient_accumulation == 1
    training = opts.Training
    assert training.accumulation_and_replication_reduction_type == poptorch.ReductionType.Mean
    strategy = training.meanAccumulationAndReplicationReductionStrategy
    assert strategy == poptorch.MeanReductionStrategy.Post
    for name in ("random_seed", "use_model", "ipu_id", "ipu_version", "model_name"):
        assert not opts.exists(name)


def test_every_setter_returns_the_options(opts):
    """Calls can be chained, and each stores what it says."""
    chained = (
        opts.deviceIterations(device_iterations=3)
        .replicationFactor(4)
        .inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)
        .outputMode(poptorch.OutputMode.EveryN, 5)
        .autoRoundNumIPUs()
        .broadcastBuffers(False)
        .connectionType(poptorch.ConnectionType.OnDemand)
        .syncPattern(poptorch.SyncPattern.SinglePipeline)
        .useIpuModel(True)
        .useIpuId(3)
        .logDir("logs")
        .maxRepeatLogs(None)
        .modelName("net")
        .enableStableNorm(True)
        .showCompilationProgressBar(False)
        .relaxOptimizerAttributesChecks()
        .disableModuleNamescope()
        .updatableNamedBuffers(["a"])
        .sourceLocationExcludes(["x"])
        .appendToLocationExcludes("y", "z")
        .setExecutionStrategy(poptorch.ShardedExecution())
    )
    assert chained is opts
    assert (opts.device_iterations, opts.replication_factor, opts.input_group_size) == (3, 4, 2)
    assert opts.input_cgt == poptorch.CommGroupType.Orthogonal
    assert (opts.output_mode, opts.output_return_period) == (poptorch.OutputMode.EveryN, 5)
    assert (opts.use_model, opts.ipu_id, opts.model_name) == (True, 3, "net")
    assert opts.max_repeat_logs == 2**64 - 1
    assert opts.source_location_excludes == ["x", "y", "z"]
    assert opts.Popart.get("updatableNamedBuffers") == ["a"]
    assert isinstance(opts.execution_strategy, poptorch.ShardedExecution)
    poptorch_core._validateOptions(opts.toDict())


def test_attributes_are_values(opts):
    """A public attribute reads and writes its option, of its type only."""
    opts.replication_factor = 4
    assert opts.replication_factor == 4
    assert opts("replication_factor") == 4
    with pytest.raises(AssertionError, match="Invalid option replication_facto"):
        opts.replication_facto = 4
    with pytest.raises(AssertionError, match="Unexpected type <class 'str'> for option device_i"):
        opts.device_iterations = "4"


def test_unknown_attributes(opts):
    """Unknown names cannot be read, and private ones cannot be added."""
    with pytest.raises(AttributeError, match=r"Invalid attribute 'device_iteration'.*did you mean"):
        _ = opts.device_iteration
    with pytest.raises(AssertionError, match="Invalid option _new"):
        opts._new = 1
    with pytest.raises(AssertionError, match="Invalid option foo"):
        opts.set(foo=1)


def test_create_and_delete(opts):
    """createOrSet makes an option, deleteIfExists removes it."""
    opts.createOrSet(model_name="a").createOrSet(model_name="b")
    assert opts.exists("model_name")
    assert opts.model_name == "b"
    opts.deleteIfExists("model_name")
    opts.deleteIfExists("model_name")
    assert not opts.exists("model_name")


def test_input_groups(opts):
    """A group fits the replication factor; All is no grouping of inputs."""
    opts.replicationFactor(4)
    kinds = poptorch.CommGroupType
    with pytest.raises(ValueError, match=r"CommGroupType\.All"):
        opts.inputReplicaGrouping(4, kinds.All)
    with pytest.raises(ValueError, match="larger than the replication factor"):
        opts.inputReplicaGrouping(8, kinds.Consecutive)
    with pytest.raises(ValueError, match="must be a factor of the replication"):
        opts.inputReplicaGrouping(3, kinds.Consecutive)
    opts.inputReplicaGrouping(4, kinds.NoGrouping)
    assert opts.input_group_size == 1


def test_output_modes(opts):
    """EveryN needs a period, other modes have none."""
    with pytest.raises(AssertionError, match="greater than 0"):
        opts.outputMode(poptorch.OutputMode.EveryN)
    assert opts.defaultOutputMode()
    opts.outputMode(poptorch.OutputMode.Final, 20)
    assert opts.output_return_period == 1
    assert not opts.defaultOutputMode()


def test_anchors(opts):
    """An anchor keeps its long name and its own mode, if it has one."""
    opts.anchorTensor("g", "Gradient___w").anchorTensor("l", "loss", poptorch.OutputMode.EveryN, 2)
    assert opts.anchored_tensors["g"] == ("Gradient___w", None, 1)
    assert opts.anchored_tensors["l"] == ("loss", poptorch.OutputMode.EveryN, 2)


def test_memory_proportions(opts):
    """Proportions are given by chip."""
    opts.setAvailableMemoryProportion({"IPU0": 0.3, "IPU1": 0.1})
    assert opts.available_memory_proportion == {0: 0.3, 1: 0.1}
    with pytest.raises(AssertionError, match="IPU0, IPU1"):
        opts.setAvailableMemoryProportion({"chip0": 0.3})


def test_random_seed(opts):
    """A seed is a whole number, and seeds the host at once."""
    opts.randomSeed(7)
    first = torch.rand(2)
    opts.randomSeed(7)
    assert torch.equal(first, torch.rand(2))
    assert opts.random_seed == 7
    with pytest.raises(AssertionError, match="whole number"):
        opts.randomSeed("7")


def test_offline_target(opts):
    """An offline target is never connected."""
    opts.useOfflineIpuTarget()
    assert opts.connection_type == poptorch.ConnectionType.Never
    assert opts.ipu_version == 2


def test_options_for_the_compiler(opts, tmp_path):
    """Setters of the compiler's options store them under the compiler's names."""
    opts.enableExecutableCaching(tmp_path).enableSyntheticData(True).logCycleCount(True)
    opts.Precision.setPartialsType(torch.half).enableStochasticRounding(True)
    opts.Precision.enableFloatingPointExceptions(False)
    opts.Training.setAutomaticLossScaling(True).setConvolutionDithering(True)
    opts.enableProfiling(tmp_path)
    popart = opts._Popart.options
    assert popart["cachePath"] == str(tmp_path)
    assert popart["enableEngineCaching"]
    assert popart["syntheticDataMode"] == 2
    assert popart["instrumentWithHardwareCycleCounter"]
    assert popart["partialsTypeMatMuls"] == "half"
    expected = {"partialsType": "half", "enableConvDithering": "true"}
    assert popart["convolutionOptions"] == expected
    assert popart["automaticLossScalingSettings.enabled"]
    assert popart["engineOptions"]["autoReport.directory"] == str(tmp_path)
    opts.enableExecutableCaching(None).enableSyntheticData(False)
    assert not popart["enableEngineCaching"]
    assert "cachePath" not in popart
    assert popart["syntheticDataMode"] == 0


def test_rejected_values(opts):
    """Values that mean nothing are rejected with PopTorch's classes of errors."""
    with pytest.raises(ValueError, match=r"torch\.half or torch\.float"):
        opts.Precision.setPartialsType(torch.int32)
    with pytest.raises(ValueError, match=r"ReductionType\.Sum"):
        opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)
    with pytest.raises(ValueError, match=r"ReductionType\.Sum"):
        opts.Training.accumulationAndReplicationReductionType(1)
    with pytest.raises(ValueError, match="MeanReductionStrategy"):
        opts.Training.setMeanAccumulationAndReplicationReductionStrategy(1)
    with pytest.raises(ValueError, match="no longer supported"):
        opts.Jit.traceModel(True)
    with pytest.raises(AssertionError, match="PipelinedExecution"):
        opts.setExecutionStrategy("pipelined")
    for n_tiles in (10, 193, 33):
        with pytest.raises(AssertionError, match=r"even number between 32 and 192\."):
            opts.TensorLocations.numIOTiles(n_tiles)
    opts.TensorLocations.numIOTiles(32).numIOTiles(192)
    assert opts.Jit.traceModel(False) is opts.Jit


def test_tensor_locations(opts):
    """Locations are stored as dictionaries of whole numbers."""
    settings = poptorch.TensorLocationSettings().useOnChipStorage(True).minElementsForOffChip(4)
    settings.useReplicatedTensorSharding(False).minElementsForReplicatedTensorSharding(8)
    opts.TensorLocations.setWeightLocation(settings)
    opts.TensorLocations.setActivationLocation(
        poptorch.TensorLocationSettings().useIOTilesToLoad(True).useIOTilesToStore(False)
    )
    assert opts.TensorLocations.location_weight == {
        "onChip": 1,
        "minElementsForOffChip": 4,
        "useReplicatedTensorSharding": 0,
        "minElementsForReplicatedTensorSharding": 8,
    }
    expected = {"useIOTilesToLoad": 1, "useIOTilesToStore": 0}
    assert opts.TensorLocations.location_activation == expected
    settings.useOnChipStorage(None)
    assert "onChip" in opts.TensorLocations.location_weight
    with pytest.raises(AssertionError, match="TensorLocationSettings"):
        opts.TensorLocations.setOptimizerLocation({"onChip": 1})


SETTERS = [
    lambda o: o.deviceIterations(2),
    lambda o: o.randomSeed(1),
    lambda o: o.Training.gradientAccumulation(2),
    lambda o: o.Training.setAutomaticLossScaling(True),
    lambda o: o.Precision.setPartialsType(torch.half),
    lambda o: o.Distributed.configureProcessId(1, 2),
    lambda o: o.TensorLocations.numIOTiles(32),
    lambda o: o._Popart.set("autoRecomputation", 3),
    lambda o: o._Popart.setPatterns({}),
    lambda o: o.setExecutionStrategy(poptorch.ShardedExecution()),
    lambda o: o.enableExecutableCaching(None),
    lambda o: o.enableProfiling(),
    lambda o: setattr(o, "replication_factor", 2),
    lambda o: o.checkIsFrozen(),
]


@pytest.mark.parametrize("wrapper", [poptorch.trainingModel, poptorch.inferenceModel])
def test_a_model_freezes_its_options(opts, wrapper):
    """Options given to a model reject every setter: a change would have no effect on it."""
    wrapped = wrapper(torch.nn.Linear(2, 2), opts)
    for frozen in (opts, wrapped.options):
        for setter in SETTERS:
            with pytest.raises(AttributeError, match="Can't modify frozen Options"):
                setter(frozen)
    assert opts.defaultOutputMode()  # what the model chose is its own
    wrapper(torch.nn.Linear(2, 2), opts)  # and another one can use them
    opts.clone().deviceIterations(2)


@pytest.mark.parametrize("accum_type", [torch.float16, torch.float32])
@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize(
    "chosen",
    [None, poptorch.MeanReductionStrategy.Post, poptorch.MeanReductionStrategy.PostAndLoss],
)
@pytest.mark.parametrize("is_training", [False, True])
def test_half_accumulators_keep_a_running_mean(opts, accum_type, combined, chosen, is_training):
    """Separate half accumulators need Running, whatever a script chose; others use its choice."""
    model = torch.nn.Linear(2, 2)
    loss = lambda x: poptorch.identity_loss(torch.nn.functional.linear(x, model.weight), "sum")  # noqa: E731
    model.forward = loss
    if chosen is not None:
        opts.Training.setMeanAccumulationAndReplicationReductionStrategy(chosen)
    optimizer = poptorch.optim.SGD(
        model.parameters(), lr=0.1, accum_type=accum_type, use_combined_accum=combined
    )
    if is_training:
        wrapped = poptorch.trainingModel(model, opts, optimizer)
    else:
        wrapped = poptorch.inferenceModel(model, opts)
    is_running = is_training and accum_type is torch.float16 and not combined
    strategies = poptorch.MeanReductionStrategy
    untouched = strategies.Post if chosen is None else chosen
    for _ in ("wrapped", "compiled"):
        result = wrapped.options.Training.meanAccumulationAndReplicationReductionStrategy
        assert result is (strategies.Running if is_running else untouched)
        if not wrapped.isCompiled():
            wrapped.compile(torch.ones(1, 2))
    assert opts.Training.meanAccumulationAndReplicationReductionStrategy is untouched


def test_an_optimizer_set_before_compiling_decides_the_mean(opts):
    """setOptimizer with half accumulators before compiling means Running; afterwards it raises."""
    model = torch.nn.Linear(2, 2)
    model.forward = lambda x: poptorch.identity_loss(x * model.weight, "sum")
    plain = poptorch.optim.SGD(model.parameters(), lr=0.1)
    half = poptorch.optim.SGD(model.parameters(), lr=0.1, accum_type=torch.float16)
    wrapped = poptorch.trainingModel(model, opts, plain)
    training, running = wrapped.options.Training, poptorch.MeanReductionStrategy.Running
    wrapped.setOptimizer(half)
    assert training.meanAccumulationAndReplicationReductionStrategy is running
    wrapped.setOptimizer(plain)
    wrapped.compile(torch.ones(1, 2))
    with pytest.raises(ValueError, match="already compiled"):
        wrapped.setOptimizer(half)


def test_frozen_options(opts):
    """Frozen options reject every setter, also of their groups; copies can change."""
    opts.freeze()
    setters = [*SETTERS, lambda o: o.set(random_seed=1)]
    for setter in setters:
        with pytest.raises(AttributeError, match="Can't modify frozen Options"):
            setter(opts)
    for unfrozen in (copy.deepcopy(opts), opts.clone()):
        for setter in setters:
            if setter is not setters[-1]:
                setter(unfrozen)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.deviceIterations(2)
    opts.unfreeze()
    opts.deviceIterations(2)


def test_copies_are_independent(opts):
    """Changing options leaves their copies as they were."""
    opts.deviceIterations(5).anchorTensor("t1", "tensor1")
    opts._Popart.set("autoRecomputation", 3)
    opts.Training.gradientAccumulation(4)
    copied = copy.deepcopy(opts)
    opts.deviceIterations(4).anchorTensor("t2", "tensor2")
    opts._Popart.set("autoRecomputation", 2)
    opts.Precision.enableStochasticRounding(True)
    assert copied.device_iterations == 5
    assert list(copied.anchored_tensors) == ["t1"]
    assert copied.Popart.get("autoRecomputation") == 3
    copied.Precision.enableStochasticRounding(False)
    assert copied.Popart.get("enableStochasticRounding") is False
    assert opts.Popart.get("enableStochasticRounding") is True


def test_options_survive_pickling(opts):
    """Options reach another process as they are."""
    opts.deviceIterations(3).Training.gradientAccumulation(2)
    assert repr(pickle.loads(pickle.dumps(opts))) == repr(opts)


def test_repr_shows_everything(opts):
    """Equal calls give equal text, other calls other text."""
    other = poptorch.Options()
    assert repr(opts).startswith("Options(")
    assert repr(opts) == repr(other)
    other.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("a").ipu(1)))
    assert repr(opts) != repr(other)
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("a").ipu(1)))
    assert repr(opts) == repr(other)
    opts.Precision.enableFloatingPointExceptions(True)
    assert repr(opts) != repr(other)


def test_distributed(opts, monkeypatch):
    """The process and their number come from calls, from MPI or from named variables."""
    opts.Distributed.configureProcessId(2, 15)
    assert (opts.Distributed.processId, opts.Distributed.numProcesses) == (2, 15)
    assert opts.Distributed.disable().numProcesses == 1
    monkeypatch.setenv("SIZE", "8")
    monkeypatch.setenv("PLACE", "5")
    opts.Distributed.setEnvVarNames("SIZE", "PLACE")
    assert (opts.Distributed.processId, opts.Distributed.numProcesses) == (5, 8)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    fresh = poptorch.Options().Distributed
    assert (fresh.processId, fresh.numProcesses) == (3, 4)


def test_the_class_of_a_group_can_be_replaced(opts):
    """popdist replaces the class of the distributed options."""

    class Distributed(poptorch.options._DistributedOptions):
        @property
        def processId(self):
            return 42

    opts.Distributed.__class__ = Distributed
    assert opts.Distributed.processId == 42
    assert copy.deepcopy(opts).Distributed.processId == 42


def test_number_of_ipus(opts):
    """A model needs all chips up to its last one, for each replica, rounded if that is allowed."""
    assert n_ipus_needed([], 1, opts) == 1
    assert n_ipus_needed([0, 1], 2, opts) == 4
    assert n_ipus_needed([3], 1, opts) == 4
    with pytest.raises(poptorch.Error, match="power of 2 or maximum of 64 IPUs") as caught:
        n_ipus_needed([0, 1, 2], 1, opts)
    text = "The model specifies the use of 3 IPUs, however PopTorch must reserve a minimum of 4 "
    assert caught.value.message.startswith(text)
    assert n_ipus_needed([0, 1, 2], 1, opts.clone().autoRoundNumIPUs()) == 4
    assert n_ipus_needed([0, 1, 2], 1, opts.clone().useIpuModel(True)) == 3
    assert n_ipus_needed(range(16), 4, opts) == 64
    text = (
        r"Too many IPUs requested \(128\)\. Experiments that need more than 64 IPUs require "
        r"distributed execution\."
    )
    with pytest.raises(poptorch.Error, match=text):
        n_ipus_needed(range(16), 8, opts)


@pytest.mark.parametrize("n_ipus", [1, 2, 3, 6, 16, 63, 64, 65, 128, 130])
def test_rounding_comes_before_the_limit(opts, n_ipus, capsys):
    """A machine has partitions; neither an offline target nor the IPU model has them."""
    assert n_ipus_needed([0], n_ipus, opts.clone().useOfflineIpuTarget()) == n_ipus
    assert n_ipus_needed([0], n_ipus, opts.clone().useIpuModel(True)) == n_ipus
    sizes = [1, 2, 4, 8, 16, 32, *range(64, 640, 64)]
    n_reserved = next(size for size in sizes if size >= n_ipus)
    rounded = opts.clone().autoRoundNumIPUs()
    if n_reserved > n_ipus:
        with pytest.raises(poptorch.Error, match=f"must reserve a minimum of {n_reserved} "):
            n_ipus_needed([0], n_ipus, opts)
    if n_reserved > 64:
        with pytest.raises(poptorch.Error, match=rf"Too many IPUs requested \({n_reserved}\)"):
            n_ipus_needed([0], n_ipus, rounded)
    else:
        assert n_ipus_needed([0], n_ipus, rounded) == n_reserved
    warning = f"{n_reserved - n_ipus} will be reserved but not used"
    assert (warning in capsys.readouterr().err) == (n_reserved > n_ipus)


def test_the_ipu_model_has_any_number_of_ipus(opts, monkeypatch):
    """POPTORCH_IPU_MODEL asks for the model unless the options say no."""
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    assert n_ipus_needed([0, 1, 2], 1, opts) == 3
    with pytest.raises(poptorch.Error, match="reserve a minimum of 4"):
        n_ipus_needed([0, 1, 2], 1, opts.useIpuModel(False))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (lambda o: o.deviceIteratons(3), "did you mean 'deviceIterations'"),
        (lambda o: o.anchorMode(2), "it is now called 'outputMode'"),
        (
            lambda o: o.Training.accumulationReductionType(1),
            "it is now called 'accumulationAndReplicationReductionType'",
        ),
        (lambda _: poptorch.TrainingModel, "did you mean 'trainingModel'"),
        (lambda _: poptorch.AnchorMode, "it is now called 'OutputMode'"),
    ],
)
def test_misspelt_and_old_names(opts, wrong, right):
    """A setter or name that does not exist says what it is called."""
    with pytest.raises(AttributeError, match=right):
        wrong(opts)


def test_engine_options_are_checked_at_once(opts):
    """An option the engine does not know is an error of the first call, on the host too."""
    opts._Popart.setEngineOptions({"debug.allowOutOfMemry": "true"})
    wrapped = poptorch.inferenceModel(torch.nn.Identity(), opts)
    text = (
        "poplar_invalid_option.*debug.allowOutOfMemry(.|\n)*did you mean 'debug.allowOutOfMemory'"
    )
    with pytest.raises(poptorch.Error, match=text):
        wrapped(torch.ones(2))


@pytest.mark.slow
def test_engine_options_reach_the_compiler(opts, monkeypatch):
    """A model that is too large is PopTorch's error by Poplar's name; an option lets it pass."""
    monkeypatch.setattr("tremula.compiler.compile.out_of_memory_error", lambda *_: _full())
    opts.useIpuModel(True)
    patient = opts.clone()
    patient._Popart.setEngineOptions({"debug.allowOutOfMemory": "true"})
    with pytest.raises(poptorch.Error, match=r"tile 3 is full[\s\S]*BeginBlock") as caught:
        poptorch.inferenceModel(torch.nn.ReLU(), opts)(torch.ones(2))
    assert caught.value.type == "poplar_graph_memory_allocation_error"
    assert isinstance(caught.value.__cause__, GraphMemoryAllocationError)
    with pytest.warns(OutOfMemoryWarning):
        poptorch.inferenceModel(torch.nn.ReLU(), patient)(torch.ones(2))


def _full():
    return GraphMemoryAllocationError("tile 3 is full")
