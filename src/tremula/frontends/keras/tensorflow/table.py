"""The table of TensorFlow's modules: for each, where its names come from.

A row is `module: names`, with `own=other` where a name differs there, and `*` for every public name
of a module. A module that begins with a dot is of `tremula.frontends.keras`.
"""

from tremula.frontends.keras.tensorflow.types import DTYPES

_ARRAYS = (
    ".tensorflow.arrays: boolean_mask broadcast_to cast=cast_ concat constant convert_to_tensor"
    " ensure_shape expand_dims eye fill gather gather_nd identity linspace meshgrid newaxis one_hot"
    " ones ones_like pad range=range_ rank repeat reshape reverse roll scatter_nd sequence_mask"
    " shape size slice=slice_ split squeeze stack tensor_scatter_nd_add tensor_scatter_nd_update"
    " tile transpose unstack where zeros zeros_like"
)
_ARITHMETIC = (
    ".tensorflow.maths: abs acos acosh add asin asinh atan atan2 atanh cos cosh divide equal erf"
    " exp floor floormod greater greater_equal less less_equal logical_and logical_not logical_or"
    " maximum minimum multiply negative not_equal pow round sigmoid sign sin sinh sqrt square"
    " subtract tan tanh truediv argmax argmin reduce_all reduce_any reduce_logsumexp reduce_max"
    " reduce_mean reduce_min reduce_prod reduce_sum add_n cumsum"
)
_MATHS = (
    ".tensorflow.maths: ceil conj expm1 floordiv imag is_finite is_inf is_nan log log1p"
    " log_sigmoid logical_xor mod real reciprocal reduce_std reduce_variance rsqrt softplus"
    " softsign bincount confusion_matrix divide_no_nan in_top_k l2_normalize segment_sum"
    " squared_difference top_k unsorted_segment_max unsorted_segment_mean unsorted_segment_sum"
)
_LINALG = ".tensorflow.maths: band_part einsum matmul norm tensordot"
_IMAGES = (
    ".tensorflow.images: ResizeMethod adjust_brightness adjust_contrast adjust_saturation"
    " central_crop convert_image_dtype crop_and_resize crop_to_bounding_box flip_left_right"
    " flip_up_down grayscale_to_rgb pad_to_bounding_box per_image_standardization"
    " random_brightness random_contrast random_crop random_flip_left_right random_flip_up_down"
    " random_saturation resize resize_with_crop_or_pad rgb_to_grayscale rot90"
    " sample_distorted_bounding_box"
)
_DECODERS = (
    ".tensorflow.images: decode_and_crop_jpeg decode_image decode_jpeg decode_png encode_jpeg"
    " encode_png extract_jpeg_shape"
)
_TYPES = f"{' '.join(DTYPES)} half double"
_OPTIMIZERS = (
    ".tensorflow.keras2: Adadelta Adagrad Adam AdamW Adamax Ftrl Nadam RMSprop SGD",
    "keras.optimizers: *",
)
_PIPELINING = (
    ".enums: PipelineSchedule RecomputationMode",
    ".tensorflow.ipu_ops: PipelineStageOptions recomputation_checkpoint",
)
_COLLECTIVES = (
    (
        ".tensorflow.distributed: allgather allreduce broadcast broadcast_variables"
        " grouped_allreduce"
        " DistributedGradientTape DistributedOptimizer"
    ),
    (
        "tremula.frontends.poptorch.collectives: Average Compression Max Min Product Sum"
        " allgather_object broadcast_object cross_rank cross_size init is_initialized"
        " join local_rank"
        " local_size rank shutdown size"
    ),
)
_GRADIENTS = ".enums: GradientAccumulationReductionMethod"
_DATASETS = (
    "boston_housing california_housing cifar10 cifar100 fashion_mnist imdb mnist reuters"
).split()
_OF_KERAS = (
    "activations applications constraints initializers metrics preprocessing"
    " preprocessing.image preprocessing.sequence preprocessing.text regularizers utils"
    " optimizers.schedules"
).split()

MODULES: dict[str, tuple[str, ...]] = {
    "tensorflow": (
        _ARRAYS,
        _ARITHMETIC,
        _LINALG.replace("band_part ", ""),
        f".tensorflow.others: {_TYPES} __version__=VERSION",
        ".tensorflow.types: DType TensorShape TensorSpec TypeSpec Variable as_dtype",
        ".tensorflow.maths: clip_by_global_norm clip_by_norm clip_by_value argsort sort",
        (
            ".tensorflow.control: cond control_dependencies custom_gradient device get_logger group"
            " init_scope map_fn name_scope no_op numpy_function print=print_ py_function"
            " recompute_grad vectorized_map while_loop"
        ),
        ".tensorflow.control: assert_equal=assert_equal assert_greater assert_less assert_rank",
        ".tensorflow.parsing: SparseTensor",
        ".loops.tape: GradientTape function",
        (
            ".tensorflow.others: Module UnconnectedGradients stop_gradient"
            " executing_eagerly is_tensor"
            " constant_initializer random_normal_initializer random_uniform_initializer"
            " zeros_initializer ones_initializer"
        ),
        "torch: Tensor",
        "keras: metrics losses initializers",
    ),
    "tensorflow.optimizers": _OPTIMIZERS,
    "tensorflow.math": (_ARITHMETIC, _MATHS, ".tensorflow.maths: argmax argmin"),
    "tensorflow.linalg": (
        _LINALG,
        ".tensorflow.maths: l2_normalize",
        "keras.ops: cholesky det diag eigh inv qr solve svd trace",
    ),
    "tensorflow.nn": (
        ".tensorflow.networks: *",
        ".tensorflow.maths: l2_normalize top_k in_top_k",
    ),
    "tensorflow.random": (
        (
            ".tensorflow.randoms: categorical gamma normal set_seed shuffle stateless_normal"
            " stateless_uniform truncated_normal uniform"
        ),
    ),
    "tensorflow.image": (_IMAGES, _DECODERS),
    "tensorflow.io": (
        _DECODERS,
        (
            ".tensorflow.parsing: FixedLenFeature FixedLenSequenceFeature VarLenFeature decode_raw"
            " parse_example parse_single_example read_file write_file"
        ),
        ".tensorflow.records: TFRecordOptions TFRecordWriter",
    ),
    "tensorflow.io.gfile": (
        (
            ".tensorflow.parsing: GFile copy exists glob isdir listdir makedirs mkdir remove rename"
            " rmtree"
        ),
    ),
    "tensorflow.sparse": (".tensorflow.parsing: SparseTensor to_dense",),
    "tensorflow.train": (
        ".tensorflow.records: BytesList Example Feature Features FloatList Int64List",
        ".tensorflow.parsing: latest_checkpoint",
    ),
    "tensorflow.data": (
        (
            ".tensorflow.dataset: AUTOTUNE Dataset INFINITE_CARDINALITY=INFINITE Options"
            " TFRecordDataset TextLineDataset UNKNOWN_CARDINALITY=UNKNOWN Iterator=DatasetIterator"
        ),
    ),
    "tensorflow.data.experimental": (
        (
            ".tensorflow.dataset: AUTOTUNE INFINITE_CARDINALITY=INFINITE"
            " UNKNOWN_CARDINALITY=UNKNOWN"
            " cardinality"
        ),
    ),
    "tensorflow.dtypes": (
        f".tensorflow.others: {_TYPES}",
        ".tensorflow.types: DType as_dtype",
        ".tensorflow.arrays: cast=cast_",
    ),
    "tensorflow.summary": (".tensorflow.summaries: *",),
    "tensorflow.summary.experimental": (".tensorflow.summaries: get_step set_step",),
    "tensorflow.debugging": (
        (
            ".tensorflow.control: assert_equal assert_greater assert_greater_equal assert_less"
            " assert_less_equal assert_non_negative assert_positive assert_rank assert_shapes"
            " check_numerics"
        ),
    ),
    "tensorflow.errors": (
        (
            ".tensorflow.control: InvalidArgumentError NotFoundError OpError OutOfRangeError"
            " ResourceExhaustedError"
        ),
    ),
    "tensorflow.autograph": (),
    "tensorflow.autograph.experimental": (".tensorflow.control: do_not_convert",),
    "tensorflow.nest": (
        "keras.tree: flatten map_structure pack_sequence_as is_nested assert_same_structure",
    ),
    "tensorflow.experimental": (),
    "tensorflow.experimental.numpy": ("torch: dsplit", "keras.ops: *"),
    "tensorflow.distribute": (
        ".tensorflow.distributed: OneDeviceStrategy get_strategy",
        ".strategy: Strategy=IPUStrategy",
        ".enums: ReduceOp",
    ),
    "tensorflow.config": (
        ".tensorflow.others: list_logical_devices list_physical_devices run_functions_eagerly",
    ),
    "tensorflow.compat": (".tensorflow.others: as_bytes as_str as_text=as_str",),
    "tensorflow.compat.v1": (
        ".tensorflow.types: Dimension",
        ".tensorflow.others: get_default_graph",
    ),
    "tensorflow.__internal__": (".tensorflow.types: CompositeTensor=TypeSpec",),
    "tensorflow.compat.v1.logging": ("logging: *", ".tensorflow.others: set_verbosity"),
    # -- Keras --
    "tensorflow.keras": (
        ".tensorflow.keras2: Input",
        "keras._tf_keras.keras: *",
        ".tensorflow.others: __version__=KERAS_VERSION",
    ),
    **{f"tensorflow.keras.{part}": (f"keras._tf_keras.keras.{part}: *",) for part in _OF_KERAS},
    "tensorflow.keras.backend": (
        ".tensorflow.keras_backend: dtype mean std var",
        "keras._tf_keras.keras.backend: *",
        ".tensorflow.others: learning_phase set_learning_phase",
    ),
    "tensorflow.keras.callbacks": (
        ".tensorflow.keras2: ModelCheckpoint TensorBoard",
        "keras.callbacks: *",
    ),
    "tensorflow.keras.datasets": (),
    **{
        f"tensorflow.keras.datasets.{name}": (
            f".tensorflow.datasets: load_data=load_{name}",
            f"keras.datasets.{name}: *",
        )
        for name in _DATASETS
    },
    "tensorflow.keras.layers": (".tensorflow.keras2: Input", "keras._tf_keras.keras.layers: *"),
    "tensorflow.keras.layers.experimental": (),
    "tensorflow.keras.layers.experimental.preprocessing": ("keras._tf_keras.keras.layers: *",),
    "tensorflow.keras.losses": ("keras._tf_keras.keras.losses: *",),
    "tensorflow.keras.mixed_precision": (
        ".tensorflow.keras2: LossScaleOptimizer Policy set_global_policy",
        "keras.mixed_precision: *",
    ),
    "tensorflow.keras.models": (".tensorflow.keras2: load_model", "keras.models: *"),
    "tensorflow.keras.optimizers": _OPTIMIZERS,
    "tensorflow.keras.optimizers.legacy": _OPTIMIZERS,
    "tensorflow.keras.ipu": (".ipu: *",),
    "tensorflow.keras.ipu.extensions": (".pipelines.assignments: *",),
    "tensorflow.keras.ipu.layers": (".addons.layers: *",),
    "tensorflow.keras.ipu.optimizers": (".scaling: ALSOptimizer",),
    # -- the IPU's --
    "tensorflow.python": (),
    "tensorflow.python.ipu": (
        ".tensorflow.ipu_ops: outlined_function reset_ipu_seed",
        ".ipu: *",
    ),
    "tensorflow.python.ipu.config": (".config: *", ".enums: *"),
    "tensorflow.python.ipu.enums": (".enums: *",),
    "tensorflow.python.ipu.ipu_strategy": (".strategy: *",),
    "tensorflow.python.ipu.utils": (
        ".config: IPUConfig configure_ipu_system reset_ipu_configuration get_ipu_config",
        ".enums: DeviceConnectionType SelectionOrder",
        ".tensorflow.ipu_ops: reset_ipu_seed",
    ),
    "tensorflow.python.ipu.ipu_infeed_queue": (
        ".loops.queues: IPUInfeedQueue IPUIterator IPUOwnedIterator",
    ),
    "tensorflow.python.ipu.ipu_outfeed_queue": (
        ".loops.queues: IPUOutfeedQueue ScopedIPUOutfeedQueue",
        ".enums: IPUOutfeedMode",
    ),
    "tensorflow.python.ipu.ops": (),
    "tensorflow.python.ipu.ops.pipelining_ops": _PIPELINING,
    "tensorflow.python.ipu.ops.nn_ops": (
        ".tensorflow.ipu_ops: gelu hard_sigmoid multi_conv softmax swish",
    ),
    "tensorflow.python.ipu.ops.custom_ops": (".tensorflow.ipu_ops: precompiled_user_op",),
    "tensorflow.python.ipu.ops.embedding_ops": (".tensorflow.ipu_ops: embedding_lookup",),
    "tensorflow.python.ipu.ops.math_ops": (".tensorflow.ipu_ops: serialized_matmul",),
    "tensorflow.python.ipu.ops.rand_ops": (".tensorflow.ipu_ops: dropout",),
    "tensorflow.python.ipu.ops.cross_replica_ops": (
        ".tensorflow.ipu_ops: assume_equal_across_replicas cross_replica_mean cross_replica_sum",
    ),
    "tensorflow.python.ipu.ops.functional_ops": (".tensorflow.ipu_ops: outlined_function",),
    "tensorflow.python.ipu.scopes": (
        ".tensorflow.ipu_ops: ipu_scope=scope outside_compilation_scope=scope",
    ),
    "tensorflow.python.ipu.gradient_accumulation": (_GRADIENTS,),
    "tensorflow.python.ipu.optimizers": (_GRADIENTS, ".scaling: ALSOptimizer"),
    "tensorflow.python.ipu.keras": (
        (
            ".ipu: PipelineStage FunctionalLayerPipelineStageAssignment"
            " ReplicatedMetricReductionMethod"
            " SequentialLayerPipelineStageAssignment PipelineSchedule"
        ),
    ),
    "tensorflow.python.ipu.keras.layers": (".addons.layers: *",),
    "tensorflow.python.ipu.keras.optimizers": (".scaling: ALSOptimizer",),
    "tensorflow.python.ipu.distributed": (
        *_COLLECTIVES,
        ".tensorflow.distributed: all_reduce PopDistStrategy",
    ),
    "tensorflow.python.ipu.distributed.popdist_strategy": (
        ".tensorflow.distributed: PopDistStrategy",
    ),
    "tensorflow.python.ipu.horovod": _COLLECTIVES,
    "tensorflow.python.ipu.horovod.popdist_strategy": (".tensorflow.distributed: PopDistStrategy",),
    "tensorflow.python.ipu.horovod.ipu_multi_replica_strategy": (
        ".tensorflow.distributed: IPUMultiReplicaStrategy",
    ),
    "tensorflow.python.ipu.horovod.ipu_horovod_strategy": (
        ".tensorflow.distributed: IPUHorovodStrategy",
    ),
    # -- TensorFlow's own inner paths --
    "tensorflow.python.data": (),
    "tensorflow.python.data.ops": (),
    "tensorflow.python.data.ops.dataset_ops": (
        ".tensorflow.dataset: Dataset DatasetV2=Dataset Options",
    ),
    "tensorflow.python.distribute": (),
    "tensorflow.python.distribute.reduce_util": (".enums: ReduceOp",),
    "tensorflow.python.framework": (),
    "tensorflow.python.framework.dtypes": (
        f".tensorflow.others: {_TYPES}",
        ".tensorflow.types: DType as_dtype",
    ),
    "tensorflow.python.framework.ops": (
        ".tensorflow.arrays: convert_to_tensor",
        ".tensorflow.control: control_dependencies device name_scope",
        "torch: Tensor",
    ),
    "tensorflow.python.framework.tensor_shape": (".tensorflow.types: TensorShape",),
    "tensorflow.python.keras.optimizer_v2": (),
    "tensorflow.python.keras.optimizer_v2.adam": (".tensorflow.keras2: Adam",),
    "tensorflow.python.keras.optimizer_v2.gradient_descent": (".tensorflow.keras2: SGD",),
    "tensorflow.python.keras.optimizer_v2.learning_rate_schedule": (
        "keras.optimizers.schedules: *",
    ),
    "tensorflow.python.keras.optimizer_v2.rmsprop": (".tensorflow.keras2: RMSprop",),
    "tensorflow.python.ops": (),
    "tensorflow.python.ops.array_ops": (_ARRAYS,),
    "tensorflow.python.ops.math_ops": (_ARRAYS, _ARITHMETIC, _MATHS, _LINALG),
    "tensorflow.python.ops.nn": (".tensorflow.networks: *",),
    "tensorflow.python.ops.nn_ops": (".tensorflow.networks: *",),
    "tensorflow.python.ops.random_ops": (".tensorflow.randoms: *",),
}

# Modules under a second name.
ALIASES = {
    "tensorflow.compat.v2": "tensorflow",
    "tensorflow.losses": "tensorflow.keras.losses",
    "tensorflow.metrics": "tensorflow.keras.metrics",
    "tensorflow.initializers": "tensorflow.keras.initializers",
    "tensorflow.keras.experimental": "tensorflow.keras",
    "tensorflow.python.keras": "tensorflow.keras",
    "tensorflow.python.summary": "tensorflow.summary",
    **{
        f"tensorflow.python.ipu.{name}": f"tensorflow.python.ipu.ops.{name}"
        for name in (
            "custom_ops cross_replica_ops embedding_ops functional_ops math_ops nn_ops"
            " pipelining_ops rand_ops"
        ).split()
    },
}

# All modules whose paths begin so have a second name.
PREFIXES = {"tensorflow.python.keras.": "tensorflow.keras."}

_SESSIONS = (
    "is TensorFlow 1 (graphs, sessions, estimators), which Tremula does not run: port the program"
    " to Keras or to a loop in tf.function"
)
# What is known, and why it is not there: modules, or single names.
REJECTED = {
    "tensorflow.compat.v1": _SESSIONS,
    "tensorflow.estimator": _SESSIONS,
    "tensorflow.contrib": _SESSIONS,
    "tensorflow.python.training": _SESSIONS,
    "tensorflow.python.ipu.autoshard": _SESSIONS,
    "tensorflow.python.ipu.ipu_compiler": _SESSIONS,
    "tensorflow.python.ipu.ipu_estimator": _SESSIONS,
    "tensorflow.python.ipu.ipu_pipeline_estimator": _SESSIONS,
    "tensorflow.python.ipu.ipu_run_config": _SESSIONS,
    "tensorflow.python.ipu.ipu_session_run_hooks": _SESSIONS,
    "tensorflow.python.ipu.loops": _SESSIONS,
    "tensorflow.python.ipu.sharding": _SESSIONS,
    "tensorflow.python.ipu.embedded_runtime": _SESSIONS,
    "tensorflow.python.ipu.ops.pipelining_ops.pipeline": _SESSIONS,
    "tensorflow.python.ipu.ops.pipelining_ops.OptimizerFunctionOutput": _SESSIONS,
    "tensorflow.python.ipu.utils.move_variable_initialization_to_cpu": _SESSIONS,
    "tensorflow.python.ipu.utils.create_ipu_config": (
        "is an older form of the settings: use ipu.config.IPUConfig()"
    ),
    "tensorflow.python.ipu.optimizers.CrossReplicaOptimizer": _SESSIONS,
    "tensorflow.python.ipu.optimizers.GradientAccumulationOptimizerV2": _SESSIONS,
    "tensorflow.saved_model": "is TensorFlow's format: use model.save or export_for_ipu_serving",
    "tensorflow.lite": "is for other devices",
    "tensorflow.tpu": "is for other devices",
    "tensorflow.RaggedTensor": "is not there: compiled steps have static shapes",
    "tensorflow.train.Checkpoint": "is TensorFlow's format: use model.save_weights",
    "tensorflow.train.CheckpointManager": "is TensorFlow's format: use model.save_weights",
    "tensorflow.distribute.MirroredStrategy": "is for GPUs: use ipu.ipu_strategy.IPUStrategy",
}
