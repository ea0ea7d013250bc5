"""IPUConfig: fields, twins, contradictions, files."""

import json

import pytest

import poptorch
from optimum.graphcore import IncompatibleIPUConfigError, IPUConfig
from optimum.graphcore.modeling_utils import get_layer_ipu, split_encoder_decoder_ipu_config
from tremula.frontends.optimum.published_configs import NAMES


def test_twins_follow_the_mode():
    """A field with a twin is the training one until .eval(), and the same if the twin is open."""
    config = IPUConfig(layers_per_ipu=[1, 2], inference_layers_per_ipu=[3], matmul_proportion=0.3)
    assert config.layers_per_ipu == [1, 2]
    assert config.ipus_per_replica == 2
    config.eval()
    assert config.layers_per_ipu == [3]
    assert config.ipus_per_replica == 1
    assert config.matmul_proportion == 0.3
    config.replication_factor = 4
    assert config.train().replication_factor == 1
    assert config.inference_replication_factor == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"layers_per_ipus": [1]}, "did you mean 'layers_per_ipu'"),
        ({"layers_per_ipu": [1, -2]}, "layers_per_ipu must be a list"),
        ({"layers_per_ipu": [1, 2], "ipus_per_replica": 4}, "speaks of 2 IPUs"),
        ({"replication_factor": 0}, "replication_factor must be 1 or more, got 0"),
        ({"replication_factor": True}, "replication_factor must be 1 or more, got True"),
        ({"matmul_proportion": [0.1, 0.2]}, "expected one for each of 1 IPUs"),
        ({"output_mode": "every"}, "'all', 'sum', 'final' or 'default'"),
        (
            {"embedding_serialization_factor": 2, "serialized_embedding_splits_per_ipu": [2]},
            "only one of embedding_serialization_factor and",
        ),
        (
            {
                "inference_projection_serialization_factor": 2,
                "inference_serialized_projection_splits_per_ipu": [2],
            },
            "only one of inference_projection_serialization_factor",
        ),
    ],
)
def test_wrong_fields_are_named(fields, said):
    """What a field should be, and which fields exclude each other, is in the error."""
    with pytest.raises(IncompatibleIPUConfigError) as error:
        IPUConfig(**fields)
    assert said in str(error.value)


def test_an_assignment_that_fails_changes_nothing():
    """A rejected value leaves the old one."""
    config = IPUConfig(layers_per_ipu=[1, 1])
    config.ipus_per_replica = 2
    with pytest.raises(IncompatibleIPUConfigError, match="speaks of 3 IPUs"):
        config.layers_per_ipu = [1, 1, 1]
    assert config.layers_per_ipu == [1, 1]
    with pytest.raises(AttributeError, match="did you mean 'seed'"):
        config.sead = 1


def test_files_and_strings(tmp_path):
    """A configuration comes back from its file as it was; a string changes fields."""
    config = IPUConfig(layers_per_ipu=[2, -1], seed=3)
    config.update_from_string("matmul_proportion=[0.1 0.2],recompute_checkpoint_every_layer=true")
    config.save_pretrained(tmp_path)
    again = IPUConfig.from_pretrained(tmp_path, gradient_accumulation_steps=5)
    assert again.matmul_proportion == [0.1, 0.2]
    assert again.recompute_checkpoint_every_layer
    assert again.gradient_accumulation_steps == 5
    assert IPUConfig.from_pretrained(tmp_path) == config
    with pytest.raises(IncompatibleIPUConfigError, match="not of the form field=value"):
        config.update_from_string("seed")
    (tmp_path / "ipu_config.json").write_text("{")
    with pytest.raises(IncompatibleIPUConfigError, match="is not JSON"):
        IPUConfig.from_pretrained(tmp_path)
    (tmp_path / "ipu_config.json").write_text(json.dumps([1]))
    with pytest.raises(IncompatibleIPUConfigError, match="must hold an object"):
        IPUConfig.from_pretrained(tmp_path)


def test_published_names_need_no_network():
    """Every published name resolves; an unknown one suggests the nearest."""
    assert all(IPUConfig.from_pretrained(name).ipus_per_replica >= 1 for name in NAMES)
    with pytest.raises(IncompatibleIPUConfigError, match="Graphcore/bert-base-ipu"):
        IPUConfig.from_pretrained("Graphcore/bert-bas-ipu")


def test_options():
    """Options of PopTorch carry replication, accumulation, memory, partials and rounding."""
    config = IPUConfig(
        layers_per_ipu=[1, 1],
        replication_factor=2,
        replicated_tensor_sharding=True,
        gradient_accumulation_steps=8,
        inference_device_iterations=3,
        matmul_proportion=[0.1, 0.2],
    )
    training, inference = config.to_options(), config.to_options(for_inference=True)
    assert training.replication_factor == 2
    assert inference.replication_factor == 1
    assert training.Training.gradient_accumulation == 8
    assert training.available_memory_proportion == {0: 0.1, 1: 0.2}
    assert training.TensorLocations.location_optimizer["useReplicatedTensorSharding"] == 1
    assert inference.output_mode is poptorch.OutputMode.All
    assert inference.device_iterations == 3
    assert training.Popart.get("enableStochasticRounding")
    assert not inference.Popart.get("enableStochasticRounding")
    assert config.batch_size_factor() == 16
    assert config.batch_size_factor(for_inference=True) == 3


@pytest.mark.parametrize(
    ("layers", "n_layers", "found"),
    [
        ([-1], 3, [0, 0, 0]),
        ([1, 2], 3, [0, 1, 1]),
        ([-1, 1, -1], 6, [0, 0, 1, 2, 2, 2]),
        ([0, -1], 2, [1, 1]),
    ],
)
def test_layers_go_to_ipus(layers, n_layers, found):
    """-1 takes what others leave; the last -1 takes what cannot be split evenly."""
    assert get_layer_ipu(IPUConfig(layers_per_ipu=layers), n_layers) == found


@pytest.mark.parametrize("layers", [[1, 1], [4, -1], [4]])
def test_layers_that_do_not_add_up(layers):
    """A model of three layers is not four, nor two."""
    with pytest.raises(IncompatibleIPUConfigError, match="but the model has 3"):
        get_layer_ipu(IPUConfig(layers_per_ipu=layers), 3)


def test_encoder_and_decoder_share_out_ipus():
    """The cut is the largest power of two before which the encoder ends."""
    config = IPUConfig(layers_per_ipu=[2, 2, 3, 1], matmul_proportion=[0.1, 0.2, 0.3, 0.4])
    encoder, decoder = split_encoder_decoder_ipu_config(config, 4, 4)
    assert (encoder.layers_per_ipu, decoder.layers_per_ipu) == ([2, 2], [3, 1])
    assert decoder.matmul_proportion == [0.3, 0.4]
    with pytest.raises(IncompatibleIPUConfigError, match="has no cut"):
        split_encoder_decoder_ipu_config(config, 7, 1)
    with pytest.raises(IncompatibleIPUConfigError, match="one IPU cannot be split"):
        split_encoder_decoder_ipu_config(IPUConfig(), 1, 1)
