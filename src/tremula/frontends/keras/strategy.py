"""`IPUStrategy`: models built in its scope run as compiled steps."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tremula.frontends.keras.config import n_chips_in_force
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.options import ModelOptions
from tremula.frontends.keras.trainer import scope_of


class IPUStrategy:
    """Where Keras models run: on the chips that `configure_ipu_system` chose."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ):
        # Which iterators read a data set changes speed on hardware only.
        del enable_dataset_iterators
        if not enable_keras_extensions:
            raise keras_error(
                "IPUStrategy(enable_keras_extensions=False) is not supported.",
                hint="use plain Keras outside the strategy's scope",
            )
        self.ipu_device, self.cpu_device = ipu_device, cpu_device

    @property
    def num_ipus(self) -> int:
        """Chips of the machine."""
        return n_chips_in_force()

    @property
    def num_replicas_in_sync(self) -> int:
        """Copies of a model that train together: one on each chip, unless it is a pipeline."""
        return self.num_ipus * self.num_processes

    @property
    def num_processes(self) -> int:
        """Processes that train together."""
        return 1

    def run(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:  # noqa: ANN401 - what the function returns
        """Run a function of a script on the device: one round of its loop is compiled."""
        from tremula.frontends.keras.loops.run import run_loop  # loads the compiler

        if kwargs:
            inner = fn
            fn = functools.wraps(inner)(functools.partial(inner, **kwargs))
        return run_loop(fn, list(args), self.num_ipus, self.num_processes)

    experimental_run_v2 = run

    @contextmanager
    def scope(self) -> Iterator["IPUStrategy"]:
        """Models that are built inside, or used for the first time, run compiled."""
        with scope_of(lambda: ModelOptions(n_chips=self.num_ipus, n_processes=self.num_processes)):
            yield self

    def reduce(self, reduce_op: object, value: object, axis: int | None = None) -> Any:  # noqa: ANN401
        """The sum or mean of a value along an axis; `run` has reduced over replicas already."""
        import keras

        name = str(getattr(reduce_op, "name", reduce_op)).upper()
        if name not in ("SUM", "MEAN"):
            raise keras_error(f"reduce_op must be SUM or MEAN; got {reduce_op!r}.")
        if axis is None:
            return value
        return (keras.ops.sum if name == "SUM" else keras.ops.mean)(value, axis=axis)

    def experimental_distribute_dataset(self, dataset: object, options: object = None) -> Any:  # noqa: ANN401
        """The data set itself: replicas take batches from it in turn."""
        del options
        return dataset

    def experimental_local_results(self, value: object) -> tuple[object, ...]:
        """The value of `run`, of one replica."""
        return (value,)


IPUStrategyV1 = IPUStrategy
