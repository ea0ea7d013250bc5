"""horovod.tensorflow.keras.callbacks: weights and metrics of all processes."""

from tremula.frontends.keras.tensorflow.distributed import (
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
)

__all__ = ["BroadcastGlobalVariablesCallback", "MetricAverageCallback"]
