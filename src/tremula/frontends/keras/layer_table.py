"""Every layer of Keras: how one is built, on what, and whether it runs on this computer and tiles.

docs/keras-layers.md is made from this table, and tests hold every row of it to what it says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import keras
from keras import layers

from tremula.frontends.shared.table import markdown_table


@dataclass(frozen=True)
class LayerInput:
    """An input without its batch: its shape, and what its values are."""

    shape: tuple[int, ...]
    n_values: int = 0  # whole numbers below it; 0: floats between 0 and `scale`
    scale: float = 1.0


@dataclass(frozen=True)
class LayerCase:
    """A layer as the sweep builds it. A reason says why it does not run; "" that it does."""

    name: str
    family: str
    make: Callable[[], keras.layers.Layer]
    inputs: tuple[LayerInput, ...]
    host: str = ""
    tiles: str = ""
    is_random: bool = False  # in training: then only predictions are compared
    trains: bool = True  # eager Keras can
    takes_list: bool = False  # of its inputs

    def applied(self, inputs: list[object]) -> object:
        """The layer's outputs for inputs of Keras."""
        layer = self.make()
        return layer(inputs) if self.takes_list else layer(*inputs)


ROW, SEQUENCE = LayerInput((6,)), LayerInput((5, 4))
IMAGE, VOLUME = LayerInput((8, 8, 3)), LayerInput((4, 4, 4, 2))
PHOTO = LayerInput((8, 8, 3), scale=255.0)

TEXT = "works on strings, which are data of the host: apply it in the data set"
NEEDS_TENSORFLOW = "Keras itself computes it with TensorFlow only: apply it in the data set"
READS_DRAWS = "decides by the values it draws, in Python: apply it in the data set"
BOXES = "works on bounding boxes in a dictionary: apply it in the data set"
NO_FUNCTIONAL = "Keras 3.15 cannot put it into a model"
NO_TENSORS = "an abstract class"
OTHER_FRAMEWORK = "runs another framework's code"


@cache
def layer_cases() -> dict[str, LayerCase]:
    """All layers by name; aliases are rows of what they name."""
    result = [*_core(), *_convolutions(), *_pooling(), *_shapes(), *_recurrent()]
    result += [*_norms(), *_merging(), *_attention(), *_preprocessing(), *_augmentation()]
    return {case.name: case for case in result}


Arguments = dict[str, Any] | tuple[Any, ...]
Row = Arguments | Callable[[], keras.layers.Layer]  # how a layer is made


def names_of_keras() -> dict[str, str]:
    """Every class of `keras.layers`, and the name of the row that it is in."""
    rows = {id(getattr(layers, name)): name for name in layer_cases() if hasattr(layers, name)}
    classes = {
        name: value
        for name, value in vars(layers).items()
        if isinstance(value, type) and issubclass(value, keras.layers.Layer)
    }
    return {name: rows.get(id(value), "") for name, value in sorted(classes.items())}


def _of(family: str, *inputs: LayerInput, **rows: Row) -> list[LayerCase]:
    """Cases of one family over the same inputs: a layer's arguments, or how to make it."""
    result = []
    for name, values in rows.items():
        make = _maker(name, values) if isinstance(values, dict | tuple) else values
        result.append(LayerCase(name, family, make, inputs))
    return result


def _maker(name: str, arguments: Arguments) -> Callable[[], keras.layers.Layer]:
    kind = getattr(layers, name)
    if isinstance(arguments, dict):
        return lambda: kind(**arguments)
    return lambda: kind(*arguments)


def _with(cases: list[LayerCase], **changes: object) -> list[LayerCase]:
    return [LayerCase(**{**vars(case), **changes}) for case in cases]


def _core() -> list[LayerCase]:
    family = "core and activations"
    return [
        *_of(
            family,
            ROW,
            Activation=("relu",),
            ActivityRegularization={"l2": 0.1},
            Dense=(3,),
            ELU=(),
            EinsumDense={"equation": "ab,bc->ac", "output_shape": 3},
            Identity=(),
            Lambda=lambda: layers.Lambda(lambda x: x * 2, output_shape=(6,)),
            LeakyReLU=(),
            PReLU=(),
            ReLU={"max_value": 0.5},
            Softmax=(),
            TorchModuleWrapper=_wrapped_module,
            Rescaling=(0.5,),
        ),
        *_of(family, LayerInput((5,), 7), Embedding=(7, 3), ReversibleEmbedding=(7, 3)),
        *_of(family, SEQUENCE, Masking=()),
        *_with(
            _of(
                family,
                ROW,
                AlphaDropout=(0.3,),
                Dropout=(0.3,),
                GaussianDropout=(0.3,),
                GaussianNoise=(0.3,),
            ),
            is_random=True,
        ),
        *_with(_of(family, SEQUENCE, SpatialDropout1D=(0.3,)), is_random=True),
        *_with(_of(family, IMAGE, SpatialDropout2D=(0.3,)), is_random=True),
        *_with(_of(family, VOLUME, SpatialDropout3D=(0.3,)), is_random=True),
        LayerCase("InputLayer", family, layers.Identity, (ROW,)),
        LayerCase("Wrapper", family, lambda: _Same(layers.Dense(3)), (ROW,)),
        *_refused(family, NO_TENSORS, "Layer"),
        *_refused(family, OTHER_FRAMEWORK, "FlaxLayer", "JaxLayer", "TFSMLayer"),
    ]


class _Same(layers.Wrapper):
    """A wrapper that adds nothing."""

    def call(self, inputs: object) -> object:
        return self.layer(inputs)


def _wrapped_module() -> keras.layers.Layer:
    import torch

    return layers.TorchModuleWrapper(torch.nn.Linear(6, 2), output_shape=(None, 2))


def _no_layer() -> NoReturn:
    raise NotImplementedError


def _convolutions() -> list[LayerCase]:
    family = "convolutions"
    return [
        *_of(
            family,
            SEQUENCE,
            Conv1D=(3, 2),
            Conv1DTranspose={"filters": 3, "kernel_size": 2, "strides": 2},
            DepthwiseConv1D=(2,),
            SeparableConv1D=(3, 2),
        ),
        *_of(
            family,
            IMAGE,
            Conv2D={"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"},
            Conv2DTranspose={"filters": 2, "kernel_size": 3, "strides": 2, "padding": "same"},
            DepthwiseConv2D=(3,),
            SeparableConv2D=(4, 3),
        ),
        *_of(family, VOLUME, Conv3D=(3, 2), Conv3DTranspose=(2, 2)),
    ]


def _pooling() -> list[LayerCase]:
    result = []
    for rank, source in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME)):
        for kind in ("Average", "Max"):
            rows = {
                f"{kind}Pooling{rank}D": (2,),
                f"Global{kind}Pooling{rank}D": (),
                f"Adaptive{kind}Pooling{rank}D": (2,),
            }
            result += _of("pooling", source, **rows)
    return result


def _shapes() -> list[LayerCase]:
    family = "shapes"
    return [
        *_of(
            family,
            SEQUENCE,
            Cropping1D=(1,),
            Flatten=(),
            Permute=((2, 1),),
            Reshape=((4, 5),),
            UpSampling1D=(2,),
            ZeroPadding1D=(1,),
        ),
        *_of(family, ROW, RepeatVector=(3,)),
        *_of(
            family,
            IMAGE,
            Cropping2D=(1,),
            UpSampling2D={"size": 2, "interpolation": "bilinear"},
            ZeroPadding2D=(1,),
        ),
        *_of(family, VOLUME, Cropping3D=(1,), UpSampling3D=(2,), ZeroPadding3D=(1,)),
    ]


def _recurrent() -> list[LayerCase]:
    family = "recurrent"
    return [
        *_of(
            family,
            SEQUENCE,
            LSTM=(3,),
            GRU={"units": 3, "return_sequences": True},
            SimpleRNN=(3,),
            Bidirectional=lambda: layers.Bidirectional(layers.LSTM(2)),
            RNN=lambda: layers.RNN(layers.SimpleRNNCell(3)),
            LSTMCell=lambda: layers.RNN(layers.LSTMCell(3)),
            GRUCell=lambda: layers.RNN(layers.GRUCell(3)),
            SimpleRNNCell=lambda: layers.RNN(layers.SimpleRNNCell(3)),
            StackedRNNCells=lambda: layers.RNN(
                layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)])
            ),
            TimeDistributed=lambda: layers.TimeDistributed(layers.Dense(2)),
        ),
        *_of(family, LayerInput((2, 5, 2)), ConvLSTM1D=(2, 2)),
        *_of(family, LayerInput((2, 5, 5, 2)), ConvLSTM2D=(2, 2)),
        *_of(family, LayerInput((2, 4, 4, 3, 2)), ConvLSTM3D=(2, 2)),
    ]


def _norms() -> list[LayerCase]:
    family = "normalisation"
    return [
        *_of(
            family,
            IMAGE,
            BatchNormalization=(),
            GroupNormalization=(3,),
        ),
        *_of(
            family,
            ROW,
            LayerNormalization=(),
            RMSNormalization=(),
            UnitNormalization=(),
        ),
        LayerCase(
            "SpectralNormalization",
            family,
            lambda: layers.SpectralNormalization(layers.Dense(3)),
            (ROW,),
            trains=False,
        ),
    ]


def _merging() -> list[LayerCase]:
    family = "merging"
    names = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
    return [
        *_with(_of(family, ROW, ROW, **dict.fromkeys(names, ())), takes_list=True),
        *_with(_of(family, ROW, ROW, Dot=(1,)), takes_list=True),
    ]


def _attention() -> list[LayerCase]:
    family = "attention"
    return [
        *_of(
            family,
            SEQUENCE,
            SEQUENCE,
            MultiHeadAttention=(2, 3),
            GroupQueryAttention={"head_dim": 2, "num_query_heads": 2, "num_key_value_heads": 1},
        ),
        *_with(
            _of(family, SEQUENCE, SEQUENCE, Attention=(), AdditiveAttention=()), takes_list=True
        ),
    ]


def _preprocessing() -> list[LayerCase]:
    family = "preprocessing"
    return [
        *_of(
            family,
            ROW,
            Normalization={"mean": 0.3, "variance": 2.0},
            Discretization={"bin_boundaries": [0.2, 0.5, 0.8]},
        ),
        *_of(family, LayerInput((4,), 5), CategoryEncoding={"num_tokens": 5}),
        *_of(
            family,
            IMAGE,
            CenterCrop=(4, 5),
            Resizing=(5, 6),
        ),
        *_of(
            family,
            LayerInput((64,)),
            MelSpectrogram={"num_mel_bins": 4, "fft_length": 16, "sequence_stride": 8},
        ),
        *_of(
            family,
            LayerInput((64, 1)),
            STFTSpectrogram={"frame_length": 8, "frame_step": 4, "fft_length": 16},
        ),
        *_refused(family, TEXT, "StringLookup", "TextVectorization"),
        *_refused(family, NEEDS_TENSORFLOW, "HashedCrossing", "Hashing", "IntegerLookup"),
        *_refused(family, BOXES, "MaxNumBoundingBoxes"),
        LayerCase("Pipeline", family, lambda: layers.Pipeline([layers.Rescaling(2.0)]), (ROW,)),
    ]


def _refused(family: str, reason: str, *names: str) -> list[LayerCase]:
    return [LayerCase(name, family, _no_layer, (), reason, reason) for name in names]


def _augmentation() -> list[LayerCase]:
    family = "augmentation"
    simple = {
        "AutoContrast": {"value_range": (0, 255)},
        "ContrastLimitedAdaptiveHistogramEqualization": {},
    }
    random = {
        "Solarization": {"value_range": (0, 255)},
        "RandomBrightness": (0.3,),
        "RandomColorDegeneration": (0.3,),
        "RandomColorJitter": {"brightness_factor": 0.3},
        "RandomContrast": (0.3,),
        "RandomErasing": {},
        "RandomFlip": (),
        "RandomGaussianBlur": {},
        "RandomGrayscale": {},
        "RandomHue": (0.3,),
        "RandomInvert": {},
        "RandomPerspective": {},
        "RandomPosterization": (4,),
        "RandomRotation": (0.3,),
        "RandomSaturation": (0.3,),
        "RandomSharpness": (0.3,),
        "RandomShear": {},
        "RandomTranslation": (0.3, 0.3),
        "RandomZoom": (0.3,),
    }
    drawn = ("AugMix", "CutMix", "MixUp", "RandAugment", "RandomElasticTransform")
    return [
        *_of(family, PHOTO, **simple),
        *_with(_of(family, PHOTO, **random), is_random=True),
        *_with(_of(family, PHOTO, RandomCrop=(4, 5)), is_random=True, trains=False),
        *_refused(family, READS_DRAWS, *drawn),
        *_refused(family, NO_FUNCTIONAL, "Equalization"),
    ]


# -- the page --------------------------------------------------------------------------------------

_PAGE_HEAD = """# Layers of Keras

Every class of `keras.layers`, on this computer (three steps of `fit`, and `predict`, equal to eager
Keras) and on tiles (the same, vertex by vertex). Shapes are static. [keras.md](keras.md) says how a
model is run.

This page is made by `make docs`; `make test-wide` tries every row.

"""


def layers_markdown() -> str:
    """The page docs/keras-layers.md: all layers by family."""
    cases = layer_cases()
    rows, family = [], ""
    for case in sorted(cases.values(), key=lambda case: (case.family, case.name)):
        if case.family != family:
            family = case.family
            rows.append((f"**{family}**", "", ""))
        rows.append((_names(case), case.host or "yes", case.tiles or "yes"))
    table = markdown_table(("layer", "this computer", "tiles"), rows)
    n_host = sum(not case.host for case in cases.values())
    n_tiles = sum(not case.tiles for case in cases.values())
    tail = f"{len(cases)} layers: {n_host} run on this computer, {n_tiles} on tiles."
    return f"{_PAGE_HEAD}{table}\n{tail}\n"


def _names(case: LayerCase) -> str:
    others = [n for n, row in names_of_keras().items() if row == case.name and n != case.name]
    return ", ".join(f"`{name}`" for name in [case.name, *others])
