"""The add-ons' layers: Keras's computations, with the add-ons' arguments and defaults."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import torch

from tremula.frontends.keras.config import config_in_force
from tremula.frontends.keras.errors import keras_error
from tremula.ir.ops import markers
from tremula.ir.recording import active

ops: Any = keras.ops  # what is inferred of its functions' types includes None
Value = torch.Tensor | keras.KerasTensor
Shape = Sequence[int | None]
Seed = int | Sequence[int] | np.ndarray | torch.Tensor | None
# By its name, by its configuration, or itself; what Keras infers of initializers is `str`.
Named = str | dict[str, object] | Callable[..., object] | None
Initializer = Any
__all__ = [
    "GRU",
    "LSTM",
    "AssumeEqualAcrossReplicas",
    "CTCLoss",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "GroupNormalization",
    "InstanceNorm",
    "InstanceNormalization",
    "LayerNorm",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
    "SerialDense",
]
assert markers.MARKERS, "its operations are defined where it is imported"
_DIMENSIONS = ("input_columns", "input_rows_kernel_columns", "kernel_rows")


def _check_unset(layer: str, **arguments: object) -> None:
    """Reject what the add-ons' layers reject, too."""
    for name, value in arguments.items():
        if value:
            raise ValueError(f"{layer} does not support {name}; got {value!r}.")


def _one_seed(seed: Seed) -> int | None:
    """A seed of Keras from a pair of numbers."""
    if seed is None or isinstance(seed, int):
        return seed
    first, second = (int(each) for each in np.asarray(seed).reshape(-1)[:2])
    return (first * 1_000_003 + second) % (2**31)


class Embedding(keras.layers.Embedding):
    """Rows of a table by number."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Initializer = "uniform",
        embeddings_regularizer: Named = None,
        activity_regularizer: Named = None,
        embeddings_constraint: Named = None,
        mask_zero: bool = False,
        input_length: int | None = None,
        serialization_factor: int = 1,
        **kwargs: Any,
    ):
        _check_unset(
            "Embedding",
            embeddings_regularizer=embeddings_regularizer,
            activity_regularizer=activity_regularizer,
            embeddings_constraint=embeddings_constraint,
            mask_zero=mask_zero,
            input_length=input_length,
        )
        if serialization_factor < 1 or input_dim % serialization_factor:
            raise ValueError(
                f"serialization_factor = {serialization_factor} does not divide input_dim ="
                f" {input_dim}."
            )
        super().__init__(input_dim, output_dim, embeddings_initializer, **kwargs)
        self.serialization_factor = serialization_factor

    def build(self, input_shape: Sequence[int | None] | None = None) -> None:
        if input_shape is not None and len(input_shape) != 2:
            raise ValueError(
                f"Embedding takes rows of indices, [batch, length]; got the shape {input_shape}."
            )
        super().build(input_shape)

    def get_config(self) -> dict[str, object]:
        config = super().get_config()
        for name in ("embeddings_regularizer", "activity_regularizer", "embeddings_constraint"):
            config.pop(name, None)
        return {**config, "serialization_factor": self.serialization_factor}


class Dropout(keras.layers.Dropout):
    """A share of the elements is zero while training, the others are scaled up."""

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | None = None,
        seed: Seed = None,
        ref: bool = True,
        **kwargs: Any,
    ):
        del ref  # whether a mask is computed again or saved
        super().__init__(rate, noise_shape=noise_shape, seed=_one_seed(seed), **kwargs)


class RecomputationCheckpoint(keras.layers.Layer):
    """Values that are saved where others are computed again for the backward pass."""

    def call(self, inputs: object) -> object:
        if active() is None or not config_in_force().allow_recompute:
            return inputs
        return keras.tree.map_structure(torch.ops.tremula.checkpoint, inputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


class AssumeEqualAcrossReplicas(keras.layers.Layer):
    """Values that all replicas have."""

    def __init__(self, inplace: bool = False, **kwargs: Any):
        del inplace
        super().__init__(**kwargs)

    def call(self, inputs: Value) -> Value:
        return inputs


class SerialDense(keras.layers.Dense):
    """A dense layer whose product is computed as several smaller ones."""

    def __init__(
        self,
        units: int,
        serialization_factor: int,
        serialization_dimension: str,
        activation: Named = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Named = None,
        bias_regularizer: Named = None,
        activity_regularizer: Named = None,
        kernel_constraint: Named = None,
        bias_constraint: Named = None,
        **kwargs: Any,
    ):
        if serialization_factor < 1:
            raise ValueError(
                f"serialization_factor must be at least 1; got {serialization_factor}."
            )
        if serialization_dimension not in _DIMENSIONS:
            raise ValueError(
                f"serialization_dimension must be one of {', '.join(_DIMENSIONS)}; got"
                f" {serialization_dimension!r}."
            )
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            **kwargs,
        )
        self.serialization_factor = int(serialization_factor)
        self.serialization_dimension = serialization_dimension

    def call(self, inputs: Value, training: bool | None = None) -> object:
        del training
        result = self._product(inputs, self.kernel)
        if self.bias is not None:
            result = ops.add(result, self.bias)
        return result if self.activation is None else self.activation(result)

    def _product(self, x: Value, kernel: Value) -> Value:
        n, dimension = self.serialization_factor, self.serialization_dimension
        axis_sizes = (x.shape[-2], x.shape[-1], kernel.shape[-1])
        size = axis_sizes[_DIMENSIONS.index(dimension)]
        if size is None and n > 1:
            raise keras_error(
                f"SerialDense along {dimension} needs a known size.", hint="Input(batch_size=…)"
            )
        if size is not None and size % n:
            raise ValueError(f"serialization_factor = {n} does not divide {size} ({dimension}).")
        if n == 1:
            return ops.matmul(x, kernel)
        if dimension == "input_columns":
            parts = [ops.matmul(part, kernel) for part in ops.split(x, n, axis=-2)]
            return ops.concatenate(parts, axis=-2)
        if dimension == "kernel_rows":
            parts = [ops.matmul(x, part) for part in ops.split(kernel, n, axis=-1)]
            return ops.concatenate(parts, axis=-1)
        pairs = zip(ops.split(x, n, axis=-1), ops.split(kernel, n, axis=0), strict=True)
        result: Any = None
        for left, right in pairs:
            part = ops.matmul(left, right)
            result = part if result is None else ops.add(result, part)
        return result

    def get_config(self) -> dict[str, object]:
        own = {
            "serialization_factor": self.serialization_factor,
            "serialization_dimension": self.serialization_dimension,
        }
        return {**super().get_config(), **own}


# -- normalisation ---------------------------------------------------------------------------------


class GroupNormalization(keras.layers.Layer):
    """Normalises groups of channels; by default a group takes every n-th channel."""

    def __init__(
        self,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 1e-3,
        beta_initializer: Initializer = None,
        gamma_initializer: Initializer = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        **kwargs: Any,
    ):
        super().__init__(trainable=trainable, **kwargs)
        self.groups, self.channels_axis = groups, channels_axis
        self.center, self.scale, self.epsilon = center, scale, epsilon
        self.beta_initializer = keras.initializers.get(beta_initializer or "zeros")
        self.gamma_initializer = keras.initializers.get(gamma_initializer or "ones")
        self.strided_channel_grouping = strided_channel_grouping

    def build(self, input_shape: Sequence[int | None]) -> None:
        rank = len(input_shape)
        if not -rank <= self.channels_axis < rank:
            raise ValueError(f"channels_axis = {self.channels_axis} of a tensor of rank {rank}.")
        axis = self.channels_axis % rank
        if axis not in (1, rank - 1):
            raise ValueError("channels_axis must be 1 or the last one.")
        n_channels = input_shape[axis]
        assert n_channels is not None, "Keras knows the channels"
        if self.groups < 1 or n_channels % self.groups:
            raise ValueError(f"{n_channels} channels do not make {self.groups} groups.")
        self._add_parameters(n_channels)

    def _add_parameters(self, n_channels: int) -> None:
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(
                shape=(n_channels,), initializer=self.gamma_initializer, name="gamma"
            )
        if self.center:
            self.beta = self.add_weight(
                shape=(n_channels,), initializer=self.beta_initializer, name="beta"
            )

    def call(self, inputs: Value, training: bool | None = None) -> Value:
        del training
        axis, rank = self.channels_axis % len(inputs.shape), len(inputs.shape)
        order = [0, *(i for i in range(1, rank) if i != axis), axis]
        x = ops.transpose(inputs, order) if axis != rank - 1 else inputs
        x = self._normalised(x)
        if self.gamma is not None:
            x = x * ops.cast(self.gamma, x.dtype)
        if self.beta is not None:
            x = x + ops.cast(self.beta, x.dtype)
        return ops.transpose(x, np.argsort(order).tolist()) if axis != rank - 1 else x

    def _normalised(self, x: Value) -> Value:
        """Channels last → every group with mean 0 and variance 1."""
        sizes, n_channels = x.shape[1:-1], int(x.shape[-1])
        members = n_channels // self.groups
        split = (members, self.groups) if self.strided_channel_grouping else (self.groups, members)
        member_axis = -2 if self.strided_channel_grouping else -1
        grouped = ops.reshape(x, (-1, *sizes, *split))
        axes = [*range(1, 1 + len(sizes)), len(sizes) + 3 + member_axis]
        mean = ops.mean(grouped, axis=axes, keepdims=True)
        variance = ops.var(grouped, axis=axes, keepdims=True)
        normalised = (grouped - mean) * ops.rsqrt(variance + self.epsilon)
        return ops.reshape(normalised, (-1, *sizes, n_channels))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, object]:
        names = "groups channels_axis center scale epsilon strided_channel_grouping".split()
        own: dict[str, object] = {name: getattr(self, name) for name in names}
        for name in ("beta_initializer", "gamma_initializer"):
            own[name] = keras.initializers.serialize(getattr(self, name))
        return {**super().get_config(), **own}


class InstanceNormalization(GroupNormalization):
    """Normalises every channel of every sample."""

    def __init__(
        self, channels_axis: int = -1, center: bool = True, scale: bool = True, **kwargs: Any
    ):
        kwargs.pop("groups", None)
        super().__init__(1, channels_axis, center, scale, **kwargs)

    def build(self, input_shape: Sequence[int | None]) -> None:
        n_channels = input_shape[self.channels_axis]
        assert n_channels is not None, "Keras knows the channels"
        self.groups = n_channels
        super().build(input_shape)


class LayerNormalization(keras.layers.LayerNormalization):
    """Normalises along axes, the last one by default."""

    def __init__(
        self,
        axis: Any = -1,  # one, or several
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Initializer = "zeros",
        gamma_initializer: Initializer = "ones",
        beta_regularizer: Named = None,
        gamma_regularizer: Named = None,
        beta_constraint: Named = None,
        gamma_constraint: Named = None,
        trainable: bool = True,
        **kwargs: Any,
    ):
        _check_unset(
            "LayerNormalization",
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
        )
        super().__init__(
            axis=axis,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            trainable=trainable,
            **kwargs,
        )


GroupNorm, InstanceNorm, LayerNorm = GroupNormalization, InstanceNormalization, LayerNormalization


# -- recurrent layers ------------------------------------------------------------------------------

_ACTIVATIONS = ("tanh", "relu", "softmax", "sigmoid", "hard_sigmoid")
_RECURRENT = ("tanh", "softmax", "sigmoid", "hard_sigmoid")
# Known to scripts, about the machine's memory and time; results do not depend on them.
_DETAILS = (
    "partials_dtype available_memory_proportion_fwd available_memory_proportion_bwd implementation"
    " options options_bwd"
).split()
_UNSUPPORTED = (
    "kernel_regularizer recurrent_regularizer bias_regularizer activity_regularizer"
    " kernel_constraint recurrent_constraint bias_constraint recurrent_dropout go_backwards unroll"
).split()


class _RecurrentArguments:
    """Arguments of the add-ons, in front of Keras's recurrent layers."""

    time_major: bool

    def __init__(self, units: int, *args: object, time_major: bool = False, **kwargs: Any):
        kind = type(self).__name__
        _check_unset(kind, **{name: kwargs.pop(name, None) for name in _UNSUPPORTED})
        for name in _DETAILS:
            kwargs.pop(name, None)
        if not kwargs.get("use_bias", True):
            raise ValueError(f"{kind} does not support use_bias = False.")
        names = ("activation", "recurrent_activation")
        kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        for name, known in zip(names, (_ACTIVATIONS, _RECURRENT), strict=True):
            value = kwargs.get(name, "tanh" if name == "activation" else "sigmoid")
            value = getattr(value, "__name__", value)
            if value not in known:
                raise ValueError(f"{kind} has no {name} {value!r}; known: {', '.join(known)}.")
        seed = kwargs.pop("seed", None)
        if seed is not None:
            kwargs.setdefault("kernel_initializer", keras.initializers.GlorotUniform(seed))
            kwargs.setdefault("recurrent_initializer", keras.initializers.Orthogonal(1.0, seed))
        dropout_seed = _one_seed(kwargs.pop("dropout_seed", None))
        super().__init__(units, seed=dropout_seed, **kwargs)  # pyright: ignore[reportCallIssue]
        self.time_major = time_major

    def build(
        self, sequences_shape: Sequence[int | None], initial_state_shape: object = None
    ) -> None:
        if len(sequences_shape) != 3:
            raise ValueError(f"{type(self).__name__} takes 3 dimensions; got {sequences_shape}.")
        shape = self._batch_first(sequences_shape)
        super().build(shape, initial_state_shape)  # pyright: ignore[reportAttributeAccessIssue]

    def call(
        self,
        sequences: Value,
        initial_state: object = None,
        mask: object = None,
        training: bool = False,
    ) -> Value | list[Value]:
        _check_unset(type(self).__name__, mask=mask is not None)
        x = ops.swapaxes(sequences, 0, 1) if self.time_major else sequences
        result = super().call(x, initial_state, None, training)  # pyright: ignore[reportAttributeAccessIssue]
        if not (self.time_major and self.return_sequences):  # pyright: ignore[reportAttributeAccessIssue]
            return result
        if isinstance(result, list | tuple):
            return [ops.swapaxes(result[0], 0, 1), *result[1:]]
        return ops.swapaxes(result, 0, 1)

    def compute_output_shape(
        self, sequences_shape: Shape, initial_state_shape: object = None
    ) -> Any:
        shape = self._batch_first(sequences_shape)
        result = super().compute_output_shape(shape, initial_state_shape)  # pyright: ignore[reportAttributeAccessIssue]
        if not (self.time_major and self.return_sequences):  # pyright: ignore[reportAttributeAccessIssue]
            return result
        if self.return_state:  # pyright: ignore[reportAttributeAccessIssue]
            return [self._batch_first(result[0]), *result[1:]]
        return self._batch_first(result)

    def _batch_first(self, shape: Sequence[int | None]) -> tuple[int | None, ...]:
        return (shape[1], shape[0], *shape[2:]) if self.time_major else tuple(shape)

    def get_config(self) -> dict[str, object]:
        config = super().get_config()  # pyright: ignore[reportAttributeAccessIssue]
        config = {name: value for name, value in config.items() if name not in _UNSUPPORTED}
        return {**config, "time_major": self.time_major}


class PopnnLSTM(_RecurrentArguments, keras.layers.LSTM):
    """Keras's LSTM, with the arguments of the add-ons."""


class PopnnGRU(_RecurrentArguments, keras.layers.GRU):
    """Keras's GRU, with the arguments of the add-ons."""


LSTM, GRU = PopnnLSTM, PopnnGRU


class CTCLoss(keras.layers.Layer):
    """The mean CTC loss of logits or log probabilities, time × batch × classes."""

    def __init__(self, blank_index: int = 0, from_logits: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.blank_index, self.from_logits = blank_index, from_logits

    def call(self, labels: Value, data: Value, label_length: Value, data_length: Value) -> Value:
        logits = ops.transpose(data, (1, 0, 2))
        losses = ops.ctc_loss(labels, logits, label_length, data_length, self.blank_index)
        return ops.reshape(ops.mean(losses), (1,))

    def compute_output_shape(self, *_shapes: object) -> tuple[int]:
        return (1,)

    def get_config(self) -> dict[str, object]:
        own = {"blank_index": self.blank_index, "from_logits": self.from_logits}
        return {**super().get_config(), **own}
