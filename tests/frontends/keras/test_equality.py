"""Three compiled steps are those of eager Keras: every optimiser, loss, metric and schedule."""

import contextlib
import inspect
from unittest.mock import patch

import numpy as np
import pytest
import torch

from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers, losses, metrics, optimizers  # isort: skip

N_CLASSES = 3
RNG = np.random.default_rng(3)
ROWS = RNG.random((12, 5), dtype=np.float32)
ONE_HOT = np.eye(N_CLASSES, dtype=np.float32)[RNG.integers(0, N_CLASSES, 12)]
LABELS = ONE_HOT.argmax(1)
schedules = optimizers.schedules


def classes(module, base, *but):
    """The names of what a module of Keras has of a kind."""
    kinds = inspect.getmembers(module, inspect.isclass)
    return [n for n, kind in kinds if issubclass(kind, base) and n not in but]


def sampled(names, *sample):
    """All names; those outside of the sample are tried by `make test-wide`."""
    return [pytest.param(n, marks=() if n in sample else pytest.mark.wide) for n in names]


def both(run):
    """What `run` gives of plain Keras, and of compiled steps."""
    result = []
    for place in (contextlib.nullcontext(), ipu.ipu_strategy.IPUStrategy().scope()):
        with place:
            keras.utils.clear_session(free_memory=False)  # names of metrics count from one again
            keras.utils.set_random_seed(5)
            result.append(run())
    return result


def fitted(optimizer, loss, y=ONE_HOT, measured=()):
    """History and weights of a small model after three steps."""
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(4, activation="tanh"),
            layers.Dense(N_CLASSES, activation="softmax"),
        ]
    )
    model.compile(optimizer=optimizer, loss=loss, metrics=list(measured))
    history = model.fit(ROWS, y, batch_size=4, shuffle=False, verbose=0).history
    return history, model.get_weights()


def assert_same(theirs, ours, rtol=3e-5):
    for name, value in theirs[0].items():
        np.testing.assert_allclose(ours[0][name], value, rtol=rtol, atol=1e-6, err_msg=name)
    for result, expected in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=2e-6)


OPTIMISERS = classes(
    optimizers, keras.Optimizer, "Optimizer", "LossScaleOptimizer", "MultiOptimizer",
    "OptimizerMap", "ScheduleFreeAdamW",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(OPTIMISERS, "Ftrl", "Lamb", "Muon"))
def test_optimisers(name):
    """Weights after three updates by every optimiser, as it comes."""
    assert_same(*both(lambda: fitted(getattr(optimizers, name)(), "categorical_crossentropy")))


@pytest.mark.slow
def test_an_optimiser_that_remembers_what_it_overwrites():
    """ScheduleFreeAdamW is its formulas, for which Keras on PyTorch has to copy values first.

    There a value that was read before an assignment changes with it: of `momentum_old` nothing is
    left. The reference is Keras with assignments that make new tensors.
    """

    def assigned(self, value):
        self._value = torch.nn.Parameter(value.detach().clone(), self._value.requires_grad)

    with patch.object(keras.Variable, "_direct_assign", assigned):
        keras.utils.set_random_seed(5)
        theirs = fitted(optimizers.ScheduleFreeAdamW(), "categorical_crossentropy")
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(5)
        assert_same(theirs, fitted(optimizers.ScheduleFreeAdamW(), "categorical_crossentropy"))


@pytest.mark.slow
def test_several_optimisers_in_one():
    """MultiOptimizer, each with separate weights, and settings that all optimisers have."""

    def make():
        of_kernels = optimizers.Adam(0.1, global_clipnorm=0.5, use_ema=True)
        of_biases = optimizers.SGD(0.1, weight_decay=0.01)
        return optimizers.MultiOptimizer(lambda v: of_kernels if "kernel" in v.path else of_biases)

    assert_same(*both(lambda: fitted(make(), "mse")))


SCHEDULES = {
    "CosineDecay": lambda: schedules.CosineDecay(0.1, 4, warmup_target=0.2, warmup_steps=2),
    "CosineDecayRestarts": lambda: schedules.CosineDecayRestarts(0.1, 2),
    "ExponentialDecay": lambda: schedules.ExponentialDecay(0.1, 2, 0.5, staircase=True),
    "InverseTimeDecay": lambda: schedules.InverseTimeDecay(0.1, 2, 0.5),
    "PiecewiseConstantDecay": lambda: schedules.PiecewiseConstantDecay([1, 2], [0.3, 0.2, 0.1]),
    "PolynomialDecay": lambda: schedules.PolynomialDecay(0.1, 2, cycle=True, power=2.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(SCHEDULES, "CosineDecay", "PolynomialDecay"))
def test_schedules(name):
    """The learning rate of every step is the schedule's."""
    assert_same(*both(lambda: fitted(optimizers.SGD(SCHEDULES[name]()), "mse")))


def test_every_schedule_is_tried():
    """The table above has all that Keras has."""
    kinds = classes(schedules, schedules.LearningRateSchedule, "LearningRateSchedule")
    assert sorted(SCHEDULES) == sorted(kinds)


LOSSES = classes(losses, losses.Loss, "Loss", "CTC")
OF_LABELS = ("SparseCategoricalCrossentropy", "Circle", "CategoricalGeneralizedCrossEntropy")


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(LOSSES, "Circle", "Dice", "MeanAbsolutePercentageError"))
def test_losses(name):
    """Values and gradients of every loss."""
    y = LABELS if name in OF_LABELS else ONE_HOT
    assert_same(*both(lambda: fitted(optimizers.SGD(0.01), getattr(losses, name)(), y)))


SPECIAL_METRICS = {
    "IoU": lambda: metrics.IoU(N_CLASSES, [0, 1], sparse_y_pred=False, sparse_y_true=False),
    "MeanIoU": lambda: metrics.MeanIoU(N_CLASSES, sparse_y_pred=False, sparse_y_true=False),
    "OneHotIoU": lambda: metrics.OneHotIoU(N_CLASSES, [0, 2]),
    "OneHotMeanIoU": lambda: metrics.OneHotMeanIoU(N_CLASSES),
    "TopKCategoricalAccuracy": lambda: metrics.TopKCategoricalAccuracy(2),
    "SparseTopKCategoricalAccuracy": lambda: metrics.SparseTopKCategoricalAccuracy(2),
    "PrecisionAtRecall": lambda: metrics.PrecisionAtRecall(0.3),
    "RecallAtPrecision": lambda: metrics.RecallAtPrecision(0.3),
    "SensitivityAtSpecificity": lambda: metrics.SensitivityAtSpecificity(0.3),
    "SpecificityAtSensitivity": lambda: metrics.SpecificityAtSensitivity(0.3),
}
OTHERS = ("Metric", "Mean", "Sum", "MeanMetricWrapper")  # not of targets and predictions
METRICS = classes(metrics, metrics.Metric, *OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_metrics(sparse):
    """All metrics of one model, after three steps."""
    names = [name for name in METRICS if name.startswith("Sparse") == sparse]
    y = LABELS if sparse else ONE_HOT

    def run():
        made = [SPECIAL_METRICS.get(n, getattr(metrics, n))() for n in names]
        loss = "sparse_categorical_crossentropy" if sparse else "categorical_crossentropy"
        return fitted(optimizers.SGD(0.1), loss, y, made)

    theirs, ours = both(run)
    assert len(theirs[0]) > len(names)
    assert_same(theirs, ours, rtol=1e-4)
