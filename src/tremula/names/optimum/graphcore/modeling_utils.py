"""What scripts import to split their custom models across IPUs."""

from tremula.frontends.optimum.errors import IncompatibleIPUConfigError
from tremula.frontends.optimum.models.layers import (
    OnehotGather,
    SerializedEmbedding,
    SerializedLinear,
    SharedEmbedding,
    SplitProjection,
    outline_attribute,
    recomputation_checkpoint,
)
from tremula.frontends.optimum.models.pipelined import PipelineMixin, register, to_pipelined
from tremula.frontends.optimum.models.placing import (
    get_layer_ipu,
    split_encoder_decoder_ipu_config,
)

__all__ = [
    "IncompatibleIPUConfigError",
    "OnehotGather",
    "PipelineMixin",
    "SerializedEmbedding",
    "SerializedLinear",
    "SharedEmbedding",
    "SplitProjection",
    "get_layer_ipu",
    "outline_attribute",
    "recomputation_checkpoint",
    "register",
    "split_encoder_decoder_ipu_config",
    "to_pipelined",
]
