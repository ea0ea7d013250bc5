"""popdist.tensorflow: settings of one of several processes."""

from tremula.frontends.keras.tensorflow.distributed import set_ipu_config

__all__ = ["set_ipu_config"]
