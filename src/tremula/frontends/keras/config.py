"""`IPUConfig`: the settings of the machine, nested and typed, by TensorFlow's names."""

import copy
import json
from collections.abc import Mapping

from tremula.base.context_values import ContextSetting
from tremula.frontends.keras.config_node import ConfigNode, field
from tremula.frontends.keras.enums import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from tremula.frontends.keras.errors import keras_error


class _PoplarOptions(ConfigNode):
    poplar_options = field({}, about="options of the library that plans these operations")


class _Matmuls(ConfigNode):
    clear_pass_type = field(False)
    poplar_options = field({}, about="options of matrix products")


class _NormsExperimental(ConfigNode):
    distributed_batch_norm_replica_group_size = field(1)


class _Norms(ConfigNode):
    use_stable_statistics = field(False)
    experimental = _NormsExperimental()


class _DeviceConnection(ConfigNode):
    type = field(DeviceConnectionType.ALWAYS)
    version = field("")
    enable_remote_buffers = field(False)


class _FloatingPointBehaviour(ConfigNode):
    inv = field(False)
    div0 = field(False)
    oflo = field(False)
    esr = field(StochasticRoundingBehaviour.OFF, StochasticRoundingBehaviour, bool)
    nanoo = field(False)
    set_all = field(False)


class _IoTiles(ConfigNode):
    num_io_tiles = field(0)
    place_ops_on_io_tiles = field(False)
    available_memory_proportion = field(0.9, float, int)


class _IpuModel(ConfigNode):
    compile_ipu_code = field(True)
    tiles_per_ipu = field(0)
    version = field("ipu2")


class _Math(ConfigNode):
    fast = field(False)
    dot_strength = field(True)


class _Optimizations(ConfigNode):
    math = _Math()
    prefetch_data_streams = field(True)
    combine_embedding_lookups = field(False)
    combine_matmuls = field(False)
    enable_graph_outlining = field(True)
    merge_infeed_io_copies = field(True)
    maximum_cross_replica_sum_buffer_size = field(0)
    maximum_reduce_scatter_buffer_size = field(0)
    maximum_inter_ipu_copies_buffer_size = field(0)
    maximum_send_recv_cluster_size = field(0)
    maximum_reduce_many_buffer_size = field(0)
    maximum_all_gather_buffer_size = field(0)
    minimum_remote_tensor_size = field(128)
    merge_remote_buffers = field(MergeRemoteBuffersBehaviour.IF_BENEFICIAL)
    enable_gather_simplifier = field(False)
    triangular_solve_expander_block_size = field(0)
    cholesky_block_size = field(0)
    enable_fast_math = field(False)
    enable_dynamic_slice_replacement = field(True)


class _Scheduling(ConfigNode):
    algorithm = field(SchedulingAlgorithm.CHOOSE_BEST)
    maximum_scheduler_lookahead_depth = field(5)
    maximum_scheduler_search_space_size = field(64)


class _MultiReplicaDistribution(ConfigNode):
    process_index = field(0)
    process_count = field(0)


class _Experimental(ConfigNode):
    always_rearrange_copies_on_the_host = field(False)
    enable_remote_buffer_embedding = field(False)
    enable_prng_stability = field(False)
    multi_replica_distribution = _MultiReplicaDistribution()


class IPUConfig(ConfigNode):
    """The machine a script wants. `configure_ipu_system()` makes it the one in force."""

    auto_select_ipus = field([], int, list, tuple, about="how many chips; a list: by device")
    select_ipus = field([], int, list, tuple, about="the chips themselves, by number")
    allow_recompute = field(False)
    selection_order = field(SelectionOrder.AUTO)
    serialization_output_folder = field("")
    compilation_poplar_options = field({})
    gcl_poplar_options = field({})
    convolutions = _PoplarOptions()
    matmuls = _Matmuls()
    slices = _PoplarOptions()
    pooling = _PoplarOptions()
    norms = _Norms()
    device_connection = _DeviceConnection()
    floating_point_behaviour = _FloatingPointBehaviour()
    io_tiles = _IoTiles()
    ipu_model = _IpuModel()
    optimizations = _Optimizations()
    scheduling = _Scheduling()
    experimental = _Experimental()

    def __init__(self) -> None:
        super().__init__()

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Use these settings for the models built from now on."""
        del device  # TensorFlow's name of the host
        configure_ipu_system(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "IPUConfig":
        """Settings from what `to_dict` gave."""
        result = cls()
        result._from_dict(values)
        return result

    @classmethod
    def from_json(cls, text: str) -> "IPUConfig":
        """Settings from what `to_json` gave."""
        return cls.from_dict(json.loads(text))

    @property
    def n_chips(self) -> int:
        """How many chips the script wants."""
        if self.select_ipus not in ([], ()):
            return 1 if isinstance(self.select_ipus, int) else len(self.select_ipus)
        chosen = self.auto_select_ipus
        if isinstance(chosen, int):
            return chosen
        return chosen[0] if chosen else 1


_in_force: ContextSetting[IPUConfig | None] = ContextSetting("ipu_config", None)


def configure_ipu_system(config: IPUConfig, device: str = "cpu") -> None:
    """Make settings those in force: for this thread or, in the main thread, for all."""
    del device
    if not isinstance(config, IPUConfig):
        raise keras_error(
            f"configure_ipu_system takes an IPUConfig; got {config!r}.",
            hint="cfg = ipu.config.IPUConfig(); cfg.auto_select_ipus = 1",
        )
    if config.n_chips < 1:
        raise keras_error(
            f"auto_select_ipus = {config.auto_select_ipus!r} selects no IPU.", hint="at least 1"
        )
    _in_force.set(copy.deepcopy(config))


def reset_ipu_configuration() -> None:
    """Forget the settings in force."""
    _in_force.reset()


def get_ipu_config() -> IPUConfig:
    """A copy of the settings in force; an error before the first `configure_ipu_system`."""
    config = _in_force.get()
    if config is None:
        raise keras_error(
            "no IPU system is configured.", hint="call IPUConfig().configure_ipu_system() first"
        )
    return copy.deepcopy(config)


def config_in_force() -> IPUConfig:
    """The settings in force; without any, those of a machine with one chip."""
    return _in_force.get() or IPUConfig()


def n_chips_in_force() -> int:
    """How many chips models may use; 1 without settings."""
    return config_in_force().n_chips
