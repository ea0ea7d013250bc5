"""horovod.tensorflow.keras: callbacks, and the collectives of horovod.tensorflow."""

from horovod.tensorflow import *  # noqa: F403 - all its names are public
from horovod.tensorflow.keras import callbacks as callbacks
