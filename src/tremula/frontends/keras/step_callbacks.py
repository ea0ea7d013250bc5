"""Callbacks for every step of an execution, where a model requests them."""

from collections.abc import Iterator
from contextlib import contextmanager

from keras.src import callbacks as callbacks_module

from tremula.base.libraries.patching import in_force, replaced
from tremula.frontends.keras.options import ModelOptions

_Plain = callbacks_module.CallbackList


@contextmanager
def callbacks_of_steps(options: ModelOptions) -> Iterator[None]:
    """Inside, trainers make lists that go through the steps of an execution after it."""
    is_inside = in_force(callbacks_module, "CallbackList") is not _Plain  # an evaluation in fit
    if is_inside or not options.asynchronous_callbacks:
        yield
        return

    class CallbackList(_Plain):
        """Keras's, called once for each execution; what it holds is called for each step."""

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            for index, (step, own) in enumerate(_steps(options, batch, logs)):
                if index:
                    super().on_train_batch_begin(step)
                super().on_train_batch_end(step, own)

        def on_test_batch_end(self, batch: int, logs: object = None) -> None:
            for index, (step, own) in enumerate(_steps(options, batch, logs)):
                if index:
                    super().on_test_batch_begin(step)
                super().on_test_batch_end(step, own)

    with replaced(callbacks_module, "CallbackList", CallbackList):
        yield


def _steps(options: ModelOptions, last: int, logs: object) -> list[tuple[int, object]]:
    """Numbers and logs of the steps of the execution that ended."""
    result = options.step_logs or [logs]
    stride = options.log_stride
    numbers = range(last - (len(result) - 1) * stride, last + 1, stride)
    return list(zip(numbers, result, strict=True))
