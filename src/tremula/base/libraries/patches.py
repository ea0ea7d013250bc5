"""What Tremula replaces in other libraries: the whole list, by library and version.

`patching.py` replaces only what is listed here; `tests/base/test_patching.py` checks that every row
exists in the installed version and that no other file replaces names of a library.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LibraryPatch:
    """Names of one owner (a module or class) that are replaced for one reason."""

    library: str  # as it is imported
    versions: str  # the newest that has these names
    owner: str
    names: tuple[str, ...]
    by: str  # the file that replaces them, under src/tremula
    why: str
    is_added: bool = False  # the library has no such name


_CAPTURE = "ir/capture/capture.py"
_ISOLATION = "ir/host/compile_isolation.py"
_TORCH, _KERAS, _JAX, _PYG = "2.13", "3.15", "0.10", "2.8"
_KERAS_TORCH = "keras.src.backend.torch"
_CONVS = "torch_geometric.nn.conv"


def _torch(owner: str, names: str, by: str, why: str, *, is_added: bool = False) -> LibraryPatch:
    return LibraryPatch("torch", _TORCH, owner, tuple(names.split()), by, why, is_added)


def _keras(owner: str, names: str, by: str, why: str, *, is_added: bool = False) -> LibraryPatch:
    by = f"frontends/keras/{by}"
    return LibraryPatch("keras", _KERAS, owner, tuple(names.split()), by, why, is_added)


def _static(owner: str, names: str = "forward") -> LibraryPatch:
    """A layer of PyG whose shapes depend on values, while a model is recorded."""
    return LibraryPatch(
        "torch_geometric", _PYG, owner, tuple(names.split()), "frontends/geometric/overrides.py",
        "a form whose shapes do not depend on values, while a model is recorded",
    )  # fmt: skip


def _lacking(
    owner: str, names: str, library: str = "pyg_lib", versions: str = _PYG
) -> LibraryPatch:
    """A part of PyG that needs a compiled library."""
    return LibraryPatch(
        "torch_geometric", versions, owner, tuple(names.split()),
        "frontends/geometric/pyg_lib_fallbacks.py",
        f"needs {library}, which is not installed: a form in PyTorch, for the whole process",
    )  # fmt: skip


PATCHES: tuple[LibraryPatch, ...] = (
    # -- PyTorch, for the process --
    _torch("torch._ops._Ops", "load_library", "base/libraries/fallbacks.py",
           "a Python file stands for a library of PopART's operations that cannot be loaded"),
    # -- PyTorch, while a model is recorded --
    _torch("torch._subclasses.fake_tensor.FakeTensor", "device", _CAPTURE,
           "a model's code sees the device of the program, PyTorch that of the fake tensor"),
    _torch("torch", "ipu", _CAPTURE,
           "checkpoint() and fork_rng() look for a module named as the device", is_added=True),
    _torch("torch.compiler", "_is_compiling_flag", _CAPTURE,
           "libraries that read values unless they are traced are told that they are traced"),
    _torch("torch.distributions.distribution.Distribution", "_validate_args", _CAPTURE,
           "arguments are checked by reading their values"),
    _torch("torch._subclasses.fake_tensor.log", "disabled", _CAPTURE,
           "errors of fake tensors are raised; the log repeats them"),
    _torch("torch.nn.modules.transformer", "_detect_is_causal_mask", _CAPTURE,
           "compares the values of a mask"),
    _torch("torch.amp.autocast_mode.autocast", "__init__", "ir/capture/autocast.py",
           "autocast of a GPU or an IPU is that of the fake tensors, which are on the CPU"),
    _torch("torch", "is_autocast_enabled get_autocast_dtype",
           "ir/capture/autocast.py", "as above, for libraries that ask whether autocast is in use"),
    _torch("torch", "rand randint", "frontends/keras/tracing.py",
           "Keras passes generator=None, which the recorder does not take"),
    # -- Triton, while a kernel is compiled --
    LibraryPatch("triton", "3.6", "triton.backends.nvidia.compiler", ("print",),
                 "ir/host/graph_kernels/kernels.py",
                 "prints the assembly of a kernel that the assembler rejects", is_added=True),
    # -- PyTorch, while a thread compiles --
    _torch("torch.random", "set_rng_state", _ISOLATION,
           "the compiler restores generators that other threads have used meanwhile"),
    _torch("torch.cuda", "set_rng_state", _ISOLATION,
           "the compiler restores generators that other threads have used meanwhile"),
    _torch("torch.fx._symbolic_trace._Patcher", "patch_method", _ISOLATION,
           "the tracer replaces methods of nn.Module for all threads"),
    # -- PyTorch, while `tremula launch` runs --
    _torch("torch.distributed.elastic.rendezvous.dynamic_rendezvous", "get_method_name",
           "commands/system/launch.py",
           "reads the sources of all modules for a name in a log that is off; takes a second"),
    # -- Keras, inside IPUStrategy.scope() --
    _keras(f"{_KERAS_TORCH}.trainer.TorchTrainer",
           "__init__ make_train_function make_test_function make_predict_function fit evaluate"
           " predict",
           "trainer.py", "models built or first used in a scope run as compiled steps"),
    _keras(f"{_KERAS_TORCH}.trainer", "TorchEpochIterator", "trainer.py",
           "checks that all batches have one shape"),
    _keras("keras.src.models.model.Model",
           "set_gradient_accumulation_options set_pipelining_options"
           " get_pipeline_stage_assignment set_pipeline_stage_assignment"
           " reset_pipeline_stage_assignment print_pipeline_stage_assignment_summary"
           " set_infeed_queue_options set_outfeed_queue_options set_asynchronous_callbacks"
           " set_replication_options export_for_ipu_serving ipu_report"
           " save_report",
           "trainer.py", "a plain model says that it was built outside the scope", is_added=True),
    _keras("keras.src.callbacks", "CallbackList", "step_callbacks.py",
           "callbacks are called for each step of an execution"),
    # -- Keras, while a model is built or recorded --
    _keras("keras.src.layers.layer.Layer", "__init__ __call__", "pipelines/stages.py",
           "layers note the pipeline stage they are built or called in; the recording, their name"),
    _keras("keras.src.optimizers.base_optimizer.BaseOptimizer", "apply", "loops/tape.py",
           "an optimiser in a compiled loop records what it updates"),
    _keras(f"{_KERAS_TORCH}.random", "torch_seed_generator", "tracing.py",
           "the program draws by its own generators"),
    _keras(f"{_KERAS_TORCH}.core", "scatter cond", "tracing.py",
           "forms that do not read values"),
    _keras(f"{_KERAS_TORCH}.optimizers.torch_parallel_optimizer.TorchParallelOptimizer",
           "_backend_update_step _backend_reset_gradient_accumulators"
           " _backend_increment_gradient_accumulators",
           "tracing.py", "updates by Keras's formulas for one variable, none in place"),
    _keras(f"{_KERAS_TORCH}.optimizers.torch_optimizer.TorchOptimizer", "_apply_weight_decay",
           "tracing.py", "updates by Keras's formulas for one variable, none in place"),
    # -- Keras, while scripts import `tensorflow` from here --
    _keras("keras.src.models.model.Model",
           "__init__ build save save_weights load_weights _get_metrics_result_or_logs",
           "tensorflow/keras2.py", "paths without a suffix, arguments and logs of TensorFlow 2"),
    _keras("keras.src.layers.layer.Layer", "add_weight", "tensorflow/keras2.py",
           "the name may be the first argument, as in TensorFlow 2"),
    _torch("torch.Tensor",
           "__radd__ __rsub__ __rmul__ __rtruediv__ __rfloordiv__ __rpow__ __rmod__ __rmatmul__"
           " __lt__ __le__ __gt__ __ge__ __ne__ __float__ numpy",
           "frontends/keras/tensorflow/tensors.py",
           "operands may be NumPy's arrays, and tensors with a gradient can be read"),
    LibraryPatch("torch", _TORCH, "torch.Tensor", ("get_shape",),
                 "frontends/keras/tensorflow/tensors.py", "the shape by TensorFlow's method", True),
    _keras("keras.src.random.seed_generator", "python_random", "tensorflow/randoms.py",
           "tf.random.set_seed seeds initialisers, and not Python's random module"),
    *(_keras(f"keras.datasets.{name}", "load_data", "tensorflow/datasets.py",
             "samples are generated with --synthetic-data")
      for name in ("mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters",
                   "boston_housing", "california_housing")),
    # -- JAX, inside ipu_backend() --
    LibraryPatch("jax", _JAX, "jax", ("jit", "pmap", "devices"),
                 "frontends/jax/jax_namespace.py", 'the backend "ipu" is known'),
    LibraryPatch("jax", _JAX, "jax._src.pjit", ("_pjit_call_impl_python",),
                 "frontends/jax/backend.py", "functions for the platform \"ipu\" run as programs"),
    LibraryPatch("jaxlib", _JAX, "jaxlib._jax.Device",
                 ("platform", "device_kind", "__repr__", "__str__"),
                 "frontends/jax/device.py", "what devices of the platform \"ipu\" are"),
    LibraryPatch("jaxlib", _JAX, "jaxlib._jax.Device",
                 ("target_type", "is_ipu_model", "num_tiles", "num_worker_contexts", "__call__"),
                 "frontends/jax/device.py", "what programs read of an IPU", is_added=True),
    # -- PyG, while a model is recorded --
    LibraryPatch("torch_geometric", _PYG, "torch_geometric.experimental.__experimental_flag__",
                 ("disable_dynamic_shapes",), "frontends/geometric/overrides.py",
                 "PyG's own layers take sizes from arguments, not from values"),
    _static("torch_geometric.nn.aggr.base.Aggregation", "assert_sorted_index"),
    _static(f"{_CONVS}.cheb_conv.ChebConv", "__norm__"),
    _static(f"{_CONVS}.cluster_gcn_conv.ClusterGCNConv"),
    _static(f"{_CONVS}.edge_conv.DynamicEdgeConv"),
    _static(f"{_CONVS}.film_conv.FiLMConv"),
    _static(f"{_CONVS}.gps_conv.GPSConv"),
    _static(f"{_CONVS}.gravnet_conv.GravNetConv"),
    _static(f"{_CONVS}.mf_conv.MFConv"),
    _static(f"{_CONVS}.meshcnn_conv.MeshCNNConv", "message"),
    _static(f"{_CONVS}.message_passing.MessagePassing", "_check_input _index_select aggregate"),
    _static(f"{_CONVS}.rgcn_conv.RGCNConv"),
    _static(f"{_CONVS}.x_conv.XConv"),
    _static("torch_geometric.nn.dense.linear.HeteroLinear"),
    _static("torch_geometric.nn.models.schnet.RadiusInteractionGraph"),
    _static("torch_geometric.nn.norm.batch_norm.HeteroBatchNorm"),
    _static("torch_geometric.nn.norm.instance_norm.InstanceNorm"),
    _static("torch_geometric.nn", "knn knn_graph radius radius_graph knn_interpolate nearest"),
    LibraryPatch("torch_cluster", "1.6", "torch_cluster",
                 ("knn", "knn_graph", "radius", "radius_graph", "nearest"),
                 "frontends/geometric/overrides.py",
                 "a form whose shapes do not depend on values, while a model is recorded"),
    _static(f"{_CONVS}.gcn_conv", "add_remaining_self_loops"),
    _static("torch_geometric.utils.laplacian", "remove_self_loops"),
    _static(f"{_CONVS}.agnn_conv", "remove_self_loops"),
    _static(f"{_CONVS}.eg_conv", "add_remaining_self_loops"),
    _static(f"{_CONVS}.feast_conv", "remove_self_loops"),
    _static(f"{_CONVS}.gat_conv", "remove_self_loops"),
    _static(f"{_CONVS}.gatv2_conv", "remove_self_loops"),
    _static(f"{_CONVS}.point_conv", "remove_self_loops"),
    _static(f"{_CONVS}.point_transformer_conv", "remove_self_loops"),
    _static(f"{_CONVS}.ppf_conv", "remove_self_loops"),
    # -- PyG, for the whole process, where pyg_lib is missing --
    _lacking("torch_geometric.typing",
             "WITH_KNN WITH_RADIUS WITH_NEAREST WITH_FPS WITH_GRID_CLUSTER WITH_GRACLUS"
             " WITH_SPLINE"),
    _lacking("torch_geometric.nn",
             "knn knn_graph radius radius_graph nearest fps voxel_grid graclus"),
    _lacking(f"{_CONVS}.edge_conv.DynamicEdgeConv", "forward"),
    _lacking(f"{_CONVS}.gravnet_conv.GravNetConv", "forward"),
    _lacking(f"{_CONVS}.x_conv.XConv", "forward"),
    _lacking(f"{_CONVS}.edge_conv", "knn", "torch_cluster", "2.7"),
    _lacking(f"{_CONVS}.gravnet_conv", "knn", "torch_cluster", "2.7"),
    _lacking(f"{_CONVS}.x_conv", "knn_graph", "torch_cluster", "2.7"),
    _lacking(f"{_CONVS}.spline_conv", "spline_basis spline_weighting"),
    _lacking(f"{_CONVS}.spline_conv.SplineConv", "forward"),
    _lacking("torch_geometric.sampler.neighbor_sampler.NeighborSampler", "_sample __init__",
             "pyg_lib or torch_sparse"),
    _lacking("torch_geometric.loader.cluster.ClusterData", "_metis", "pyg_lib or torch_sparse"),
)  # fmt: skip


def markdown() -> str:
    """The list as a table, for the documentation."""
    lines = ["| library | versions | replaced | why | by |", "|---|---|---|---|---|"]
    for patch in PATCHES:
        names = ", ".join(f"`{name}`" for name in patch.names)
        lines.append(
            f"| {patch.library} | {patch.versions} | `{patch.owner}`: {names} | {patch.why} |"
            f" `{patch.by}` |"
        )
    return "\n".join(lines) + "\n"
