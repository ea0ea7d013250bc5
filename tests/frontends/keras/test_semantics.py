"""What scripts for IPUs rely on: who counts steps, when callbacks come, what a checkpoint holds."""

import numpy as np
import pytest

from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.frontends.keras.options import options_of
from tremula.keras import KerasError, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers, optimizers  # isort: skip

RNG = np.random.default_rng(11)
ROWS = RNG.random((16, 4), dtype=np.float32)
CLASSES = RNG.integers(0, 3, 16)
Schedule = ipu.PipelineSchedule


@pytest.fixture(autouse=True)
def plain_system():
    """Every test begins with one chip."""
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def scope(n_ipus=1):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = n_ipus
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def classifier(dropout=0.0, **compiled):
    """A schedule, momentum and dropout: all that a checkpoint has to hold."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    x = layers.Dropout(dropout, seed=3)(layers.Dense(8, activation="relu")(inputs))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
    rate = optimizers.schedules.ExponentialDecay(0.1, 4, 0.5)
    model.compile(
        optimizers.SGD(rate, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        **compiled,
    )
    return model


def fitted(model, **choices):
    choices = {"batch_size": 2, "epochs": 1, "shuffle": False, "verbose": 0, **choices}
    return model.fit(ROWS, CLASSES, **choices).history


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_was_not_interrupted(tmp_path):
    """Weights, momentum, the schedule's step and the masks of dropout go on where they were."""
    with scope():
        whole = classifier(dropout=0.5, steps_per_execution=4)
        expected = fitted(whole, epochs=3)["loss"]
        first = classifier(dropout=0.5, steps_per_execution=4)
        saved = keras.callbacks.ModelCheckpoint(tmp_path / "at_{epoch}.keras")
        result = fitted(first, epochs=1, callbacks=[saved])["loss"]
        resumed = keras.models.load_model(tmp_path / "at_1.keras")
        resumed.steps_per_execution = 4
        result += fitted(resumed, epochs=3, initial_epoch=1)["loss"]
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    for own, other in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-7)


def test_steps_of_an_execution_are_a_multiple_of_those_accumulated():
    """An error before anything runs, at the line that trains."""
    with scope():
        model = classifier(steps_per_execution=2)
        model.set_gradient_accumulation_options(4)
        with pytest.raises(KerasError, match=r"4 are accumulated[\s\S]*test_semantics\.py"):
            fitted(model)


@pytest.mark.parametrize(
    ("schedule", "wrong", "right"),
    [(Schedule.Grouped, 6, 8), (Schedule.Interleaved, 3, 2), (Schedule.Sequential, None, 1)],
)
def test_schedules_take_batches_that_fill_them(schedule, wrong, right):
    """Grouped: twice the stages, or a multiple; interleaved: once; sequential: any number."""
    with scope(2):
        model = classifier()
        assignments = model.get_pipeline_stage_assignment()
        for number, each in enumerate(assignments):
            each.pipeline_stage = int(number > 1)
        model.set_pipeline_stage_assignment(assignments)
        model.set_pipelining_options(right, pipeline_schedule=schedule)
        pipeline = options_of(model).pipeline(model)
        pipeline.check_accumulation(right)
        if wrong is not None:
            with pytest.raises(KerasError, match="takes a multiple of"):
                pipeline.check_accumulation(wrong)


@pytest.mark.slow
def test_an_accumulated_outfeed_gives_one_result_for_each_update():
    """Asynchronous callbacks come for every update, not for every batch."""
    calls = []
    counter = keras.callbacks.LambdaCallback(on_train_batch_end=lambda n, logs: calls.append(n))
    with scope():
        model = classifier(steps_per_execution=8)
        model.set_asynchronous_callbacks(True)
        model.set_pipelining_options(4, device_mapping=[0], accumulate_outfeed=True)
        assignments = model.get_pipeline_stage_assignment()
        for each in assignments:
            each.pipeline_stage = 0
        model.set_pipeline_stage_assignment(assignments)
        fitted(model, callbacks=[counter])
    assert calls == [3, 7]


@pytest.mark.slow
def test_metrics_of_replicas():
    """Of all samples, or of those of the last replica; sums of means are an error."""
    with scope(2):
        model = classifier(steps_per_execution=4)
        everything = model.evaluate(ROWS, CLASSES, batch_size=2, verbose=0)[1]
        model.set_replication_options("LAST")
        of_last = model.evaluate(ROWS, CLASSES, batch_size=2, verbose=0)[1]
        with pytest.raises(KerasError, match=r"not added up[\s\S]*test_semantics\.py"):
            model.set_replication_options("SUM")
    best = model.predict(ROWS, batch_size=2, verbose=0).argmax(-1) == CLASSES
    assert everything == pytest.approx(best.mean())
    assert of_last == pytest.approx(best.reshape(4, 2, 2)[:, 1].mean())


def test_options_of_queues_are_checked():
    """By name and by value."""
    with scope():
        model = classifier()
        model.set_infeed_queue_options(prefetch_depth=3)
        assert options_of(model).prefetch_depth == 3
        with pytest.raises(KerasError, match=r"no option 'prefetch_dept'[\s\S]*did you mean"):
            model.set_infeed_queue_options(prefetch_dept=3)
        with pytest.raises(KerasError, match="buffer_depth must be a whole number"):
            model.set_outfeed_queue_options(buffer_depth=0)


def test_settings_of_the_machine_change_the_program():
    """What IPUConfig says about the chip, memory and rounding is there when a step is compiled."""
    from tremula.frontends.keras.machine import checks_floats, tile_settings
    from tremula.ir.settings import host_settings

    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 8
    config.ipu_model.version = "ipu1"
    config.matmuls.poplar_options = {"availableMemoryProportion": "0.3", "partialsType": "half"}
    config.floating_point_behaviour.esr = True
    config.floating_point_behaviour.inv = True
    config.io_tiles.num_io_tiles = 32
    config.compilation_poplar_options = {"debug.strict": "true"}
    config.configure_ipu_system()
    settings = tile_settings(host_settings())
    assert (settings.chip, settings.n_tiles) == ("ipu1", 8)
    assert settings.lowering.available_memory == {0: 0.3}
    assert settings.lowering.partials_type == "half"
    assert settings.lowering.rounds_stochastically
    assert settings.lowering.n_io_tiles == 32
    assert settings.engine_options == {"debug.strict": "true"}
    assert checks_floats()
    config.matmuls.poplar_options = {"availableMemory": "0.3"}
    config.configure_ipu_system()
    with pytest.raises(KerasError, match=r"no 'availableMemory'[\s\S]*did you mean"):
        tile_settings(host_settings())
