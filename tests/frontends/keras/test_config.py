"""`IPUConfig` is typed and nested, survives JSON, and names what is wrong."""

import pytest

from tremula.keras import KerasError, ipu

IPUConfig = ipu.config.IPUConfig


def test_settings_survive_json():
    """What is set is there after a round trip, choices included."""
    config = IPUConfig()
    config.auto_select_ipus = 4
    config.matmuls.poplar_options = {"partialsType": "half"}
    config.norms.experimental.distributed_batch_norm_replica_group_size = 2
    config.device_connection.type = ipu.enums.DeviceConnectionType.ON_DEMAND
    again = IPUConfig.from_json(config.to_json())
    assert again.to_dict() == config.to_dict()
    assert again.device_connection.type is ipu.enums.DeviceConnectionType.ON_DEMAND
    assert IPUConfig().matmuls.poplar_options == {}, "defaults are not shared"


def test_unknown_settings_name_the_nearest():
    """A misspelt name, read or written, is an error at the user's line."""
    config = IPUConfig()
    with pytest.raises(AttributeError, match=r"auto_select_ipu'[\s\S]*test_config[\s\S]*_ipus'"):
        config.auto_select_ipu = 1
    with pytest.raises(AttributeError, match=r"scheduling has no setting 'algoritm'"):
        _ = config.scheduling.algoritm
    with pytest.raises(AttributeError, match=r"did you mean .num_io_tiles"):
        config.get_attribute_metadata("io_tiles.num_io_tile")


def test_values_of_other_types_are_refused():
    """A setting keeps its type; a group is not replaced."""
    config = IPUConfig()
    with pytest.raises(KerasError, match=r"optimizations\.math\.fast must be bool; got 1"):
        config.optimizations.math.fast = 1
    with pytest.raises(KerasError, match=r"scheduling\.algorithm must be[\s\S]*CLUSTERING"):
        config.scheduling.algorithm = "CLUSTERING"
    with pytest.raises(KerasError, match="group of settings"):
        config.io_tiles = 3


def test_the_system_is_the_one_configured():
    """The settings in force are a copy, and say how many replicas there are."""
    config = IPUConfig()
    config.auto_select_ipus = [2]
    config.configure_ipu_system()
    config.auto_select_ipus = 8
    assert ipu.ipu_strategy.IPUStrategy().num_replicas_in_sync == 2
    assert ipu.get_ipu_config().auto_select_ipus == [2]
    ipu.reset_ipu_configuration()
    with pytest.raises(KerasError, match="no IPU system is configured"):
        ipu.get_ipu_config()
