"""Pipelines of stages compute what a model does without them, on the chips that a script names."""

import numpy as np
import pytest

import tremula
from tests.sampling import one_in
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.keras import KerasError, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers  # isort: skip

RNG = np.random.default_rng(4)
ROWS = RNG.random((16, 4), dtype=np.float32)
CLASSES = RNG.integers(0, 3, 16)


@pytest.fixture(autouse=True)
def two_small_chips():
    """Every test begins with two chips of a few tiles."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    yield
    reset_ipu_configuration()


def functional(stages=(0, 1, 1), **compiled):
    """A model of three layers, the last of which is called outside of its stage."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    with ipu.PipelineStage(stages[0]):
        x = layers.Dense(5, activation="relu", name="first")(inputs)
    with ipu.PipelineStage(stages[1]):
        x = layers.Dense(4, name="second")(x)
    with ipu.PipelineStage(stages[2]):
        last = layers.Dense(3, activation="softmax", name="third")
    model = keras.Model(inputs, last(x))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], **compiled)
    return model


def scope():
    return ipu.ipu_strategy.IPUStrategy().scope()


def fitted(model):
    history = model.fit(ROWS, CLASSES, batch_size=2, shuffle=False, verbose=0).history
    return history["loss"], model.get_weights()


def assert_same(ours, theirs):
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for own, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)


def plain():
    """A model with the weights of the pipelined one, on one chip."""
    reset_ipu_configuration()
    with scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(5, activation="relu"),
                layers.Dense(4),
                layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", steps_per_execution=4)
        model.set_gradient_accumulation_options(4)
        return fitted(model)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", one_in(3, ipu.PipelineSchedule))
def test_every_schedule_computes_what_one_chip_does(schedule):
    """Two stages on the tiles of two chips: the losses and weights of the same steps on one."""
    with scope(), tremula.configured(tiles="run"):
        model = functional(steps_per_execution=4)
        model.set_pipelining_options(4, pipeline_schedule=schedule)
        ours = fitted(model)
        report = model.ipu_report()
    assert report.total_cycles > 0
    assert_same(ours, plain())


def test_stages_are_those_of_the_call_else_of_the_layer():
    """A layer keeps the stage that it was built in, unless it is called in another."""
    with scope():
        model = functional()
        inputs = keras.Input((4,))
        with ipu.PipelineStage(0):
            shared = layers.Dense(4, name="shared")
            x = shared(inputs)
        with ipu.PipelineStage(1):
            again = shared(x)
        twice = keras.Model(inputs, shared(again))
    result = [a.pipeline_stage for a in model.get_pipeline_stage_assignment()]
    assert result == [0, 1, 1]
    result = [(a.node_index, a.pipeline_stage) for a in twice.get_pipeline_stage_assignment()]
    assert result == [(0, 0), (1, 1), (2, 0)]


def test_assignments_are_got_changed_and_set(capsys):
    """Also of models in models; what is missing or wrong is an error that names the layer."""
    with scope():
        inner = keras.Sequential([keras.Input((4,)), layers.Dense(4, name="a"), layers.ReLU()])
        model = keras.Sequential([keras.Input((4,)), inner, layers.Dense(2, name="b")])
        nested, last = model.get_pipeline_stage_assignment()
        assert isinstance(nested, ipu.SequentialNestedModelPipelineStageAssignment)
        with pytest.raises(
            KerasError, match=r"layer 'a' of .* assigned to the pipeline stage None"
        ):
            model.set_pipeline_stage_assignment([nested, last])
        for each in nested.pipeline_stage_assignments:
            each.pipeline_stage = 0
        last.pipeline_stage = 1
        with pytest.raises(KerasError, match=r"layer 'b' .* is not assigned[\s\S]*test_pipelines"):
            model.set_pipeline_stage_assignment([nested])
        model.set_pipeline_stage_assignment([nested, last])
        model.print_pipeline_stage_assignment_summary()
        printed = capsys.readouterr().out.splitlines()
        assert [line.split()[-1] for line in printed[1:]] == ["stage", "0", "0", "1"]
        model.reset_pipeline_stage_assignment()
        assert model.get_pipeline_stage_assignment()[1].pipeline_stage is None


@pytest.mark.slow
def test_stages_in_the_code_of_a_model():
    """A model with a custom `call` names its stages there."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second = layers.Dense(4), layers.Dense(3, activation="softmax")

        def call(self, x):
            with ipu.PipelineStage(0):
                x = self.first(x)
            with ipu.PipelineStage(1):
                return self.second(x)

    with scope():
        model = Own()
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=4)
        model.set_pipelining_options(4, device_mapping=[0, 1])
        model.fit(ROWS, CLASSES, batch_size=2, verbose=0)
    assert len(model.ipu_report().cycles_of_chip) == 2


@pytest.mark.slow
def test_a_layer_that_a_custom_call_uses_twice():
    """Stages assigned to the layers of a model with a custom `call` are those of all calls."""

    class Shared(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.shared, self.last = (layers.Dense(n) for n in (4, 4, 1))

        def call(self, x):
            x = self.first(x)
            return self.last(self.shared(self.shared(x)))

    keras.utils.set_random_seed(2)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.ipu_model.tiles_per_ipu = 2, 4
    config.configure_ipu_system()
    rows = np.random.default_rng(0).random((8, 3), dtype=np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = Shared()
        model(rows[:2])
        assignments = model.get_pipeline_stage_assignment()
        for each in assignments:
            each.pipeline_stage = 0 if each.layer is model.first else 1
        model.set_pipeline_stage_assignment(assignments)
        model.compile("sgd", "mse", steps_per_execution=4)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        first = model.get_weights()
        predicted = model.predict(rows, batch_size=2, verbose=0)
        model.fit(rows, rows[:, :1], batch_size=2, verbose=0)
    ipu.reset_ipu_configuration()
    hidden = rows @ first[0]
    np.testing.assert_allclose(
        predicted, hidden @ first[2] @ first[2] @ first[4], rtol=1e-4, atol=1e-5
    )


def test_what_is_no_pipeline_is_refused():
    """By the layer's name or the option's, at the user's line."""
    with scope():
        model = functional(steps_per_execution=8)
        with pytest.raises(KerasError, match=r"how many batches fill[\s\S]*test_pipelines\.py"):
            fitted(model)
        model.set_pipelining_options(2)
        with pytest.raises(KerasError, match=r"multiple of 4[\s\S]*test_pipelines\.py"):
            fitted(model)
        with pytest.raises(KerasError, match=r"no option 'pipeline_schedul'[\s\S]*did you mean"):
            model.set_pipelining_options(2, pipeline_schedul=1)
        model.set_pipelining_options(8, device_mapping=[0, 2])
        with pytest.raises(KerasError, match="pipeline on 3 IPUs; 2 are configured"):
            fitted(model)
        gaps = functional((0, 2, 2))
        gaps.set_pipelining_options(8)
        with pytest.raises(KerasError, match=r"stages of .* are \[0, 2\]"):
            fitted(gaps)
        keras.utils.set_random_seed(1)
        inputs = keras.Input((4,))
        with ipu.PipelineStage(0):
            x = layers.Dense(5)(inputs)
        with ipu.PipelineStage(1):
            x = layers.Dense(5)(x)
        model = keras.Model(inputs, layers.Dense(3, name="lost")(x))
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=4)
        model.set_pipelining_options(4)
        with pytest.raises(KerasError, match=r"layer 'lost'[\s\S]*test_pipelines\.py"):
            fitted(model)
        model = functional((1, 0, 0), steps_per_execution=4)
        model.set_pipelining_options(4)
        with pytest.raises(KerasError, match="second' of pipeline stage 0 reads what"):
            fitted(model)
    with pytest.raises(KerasError, match="a pipeline stage is a whole number"):
        ipu.PipelineStage(-1)


@pytest.mark.slow
def test_replicas_are_the_chips_that_pipelines_leave():
    """Four chips hold two replicas of a pipeline on two; the effective batch doubles."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    with scope():
        model = functional(steps_per_execution=4)
        model.set_pipelining_options(4, gradient_accumulation_reduction_method="mean")
        ours = fitted(model)
    whole = functional()
    history = whole.fit(ROWS, CLASSES, batch_size=16, shuffle=False, verbose=0).history
    assert_same(ours, (history["loss"], whole.get_weights()))
