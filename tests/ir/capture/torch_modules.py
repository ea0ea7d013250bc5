"""Every module class of torch.nn: how to make one, and inputs for it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Inputs = tuple[Tensor, ...]
Case = tuple[Callable[[], nn.Module], Inputs]


def _rows(*shape: int) -> Tensor:
    """Values between -1 and 1, all different."""
    n = torch.Size(shape).numel()
    return (torch.arange(n) * 37 % n / n * 2 - 1).reshape(shape)


ROWS, LINE, IMAGE, VOLUME = _rows(2, 4), _rows(2, 4, 8), _rows(2, 4, 6, 6), _rows(2, 4, 4, 4, 4)
BY_RANK = {1: LINE, 2: IMAGE, 3: VOLUME}
SHARES = ROWS.abs()
CLASSES, SIGNS = torch.tensor([1, 3]), torch.tensor([1.0, -1.0])
# Not modules to call: they only hold others, or are the base of others.
HOLDERS = frozenset(
    "Container Module ModuleDict ModuleList ParameterDict ParameterList RNNBase RNNCellBase".split()
)
_PER_RANK: dict[str, tuple] = {
    "AdaptiveAvgPool": (2,), "AdaptiveMaxPool": (2,), "AvgPool": (2,), "MaxPool": (2,),
    "BatchNorm": (4,), "InstanceNorm": (4,), "Conv": (4, 3, 2), "ConvTranspose": (4, 3, 2),
    "CircularPad": (1,), "ConstantPad": (1, 2.0), "ReflectionPad": (1,), "ReplicationPad": (1,),
    "ZeroPad": (1,), "LPPool": (2, 2), "Dropout": (0.0,), "LazyBatchNorm": (), "LazyConv": (3, 2),
    "LazyConvTranspose": (3, 2), "LazyInstanceNorm": (),
}  # fmt: skip
_OF_ROWS: dict[str, tuple] = {
    "AlphaDropout": (0.0,), "CELU": (), "ELU": (), "FeatureAlphaDropout": (0.0,), "Flatten": (),
    "GELU": (), "GLU": (), "Hardshrink": (), "Hardsigmoid": (), "Hardswish": (), "Hardtanh": (),
    "Identity": (), "LayerNorm": (4,), "LazyLinear": (3,), "LeakyReLU": (), "Linear": (4, 3),
    "LogSigmoid": (), "LogSoftmax": (1,), "Mish": (), "PReLU": (), "RMSNorm": (4,), "RReLU": (),
    "ReLU": (), "ReLU6": (), "SELU": (), "SiLU": (), "Sigmoid": (), "Softmax": (1,),
    "Softmin": (1,), "Softplus": (), "Softshrink": (), "Softsign": (), "Tanh": (),
    "Tanhshrink": (), "Threshold": (0.1, 2.0), "Unflatten": (1, (2, 2)), "GRUCell": (4, 3),
    "LSTMCell": (4, 3), "RNNCell": (4, 3),
}  # fmt: skip
_OF_IMAGES: dict[str, tuple] = {
    "ChannelShuffle": (2,), "CrossMapLRN2d": (2,), "GroupNorm": (2, 4), "LocalResponseNorm": (2,),
    "PixelShuffle": (2,), "PixelUnshuffle": (2,), "Softmax2d": (), "Unfold": (2,),
    "Upsample": (None, 2), "UpsamplingBilinear2d": (None, 2), "UpsamplingNearest2d": (None, 2),
    "FractionalMaxPool2d": (2, 3), "SyncBatchNorm": (4,),
}  # fmt: skip
_LOSSES: dict[str, Inputs] = {
    "BCELoss": (SHARES, SHARES), "BCEWithLogitsLoss": (ROWS, SHARES), "L1Loss": (ROWS, SHARES),
    "CosineEmbeddingLoss": (ROWS, SHARES, SIGNS), "CosineSimilarity": (ROWS, SHARES),
    "CrossEntropyLoss": (ROWS, CLASSES), "GaussianNLLLoss": (ROWS, ROWS, SHARES),
    "HingeEmbeddingLoss": (ROWS, SIGNS.unsqueeze(1)), "HuberLoss": (ROWS, SHARES),
    "KLDivLoss": (ROWS, SHARES), "MSELoss": (ROWS, SHARES), "MultiMarginLoss": (ROWS, CLASSES),
    "MarginRankingLoss": (ROWS[:, 0], ROWS[:, 1], SIGNS), "NLLLoss": (ROWS, CLASSES),
    "MultiLabelMarginLoss": (ROWS, torch.tensor([[1, 3, -1, 0], [0, -1, 1, 2]])),
    "MultiLabelSoftMarginLoss": (ROWS, (ROWS > 0).float()), "PairwiseDistance": (ROWS, SHARES),
    "NLLLoss2d": (IMAGE, torch.zeros(2, 6, 6, dtype=torch.int64)),
    "PoissonNLLLoss": (ROWS, SHARES), "SmoothL1Loss": (ROWS, SHARES),
    "SoftMarginLoss": (ROWS, SIGNS.unsqueeze(1).expand(2, 4)),
    "TripletMarginLoss": (ROWS, SHARES, ROWS + 1),
    "TripletMarginWithDistanceLoss": (ROWS, SHARES, ROWS + 1),
}  # fmt: skip
_STEPS = _rows(3, 2, 8)


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, 0.0)


def _decoder() -> nn.Module:
    return nn.TransformerDecoderLayer(8, 2, 16, 0.0)


_OTHERS: dict[str, Case] = {
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2]), (ROWS, CLASSES)
    ),
    "Bilinear": (lambda: nn.Bilinear(4, 4, 3), (ROWS, SHARES)),
    "CTCLoss": (
        nn.CTCLoss,
        (_rows(6, 2, 4).log_softmax(-1), torch.tensor([[1, 2], [3, 1]]), torch.tensor([6, 5]),
         torch.tensor([2, 1])),
    ),
    "DataParallel": (lambda: nn.DataParallel(nn.Linear(4, 3)), (ROWS,)),
    "Embedding": (lambda: nn.Embedding(5, 3), (CLASSES,)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(5, 3), (CLASSES.unsqueeze(0),)),
    "Fold": (lambda: nn.Fold(3, 2), (LINE[..., :4],)),
    "FractionalMaxPool3d": (lambda: nn.FractionalMaxPool3d(2, 2), (VOLUME,)),
    "GRU": (lambda: nn.GRU(8, 4, bidirectional=True), (_STEPS,)),
    "LSTM": (lambda: nn.LSTM(8, 4, 2), (_STEPS,)),
    "RNN": (lambda: nn.RNN(8, 4), (_STEPS,)),
    "LinearCrossEntropyLoss": (lambda: nn.LinearCrossEntropyLoss(4, 6), (ROWS, CLASSES)),
    "MaxUnpool1d": (lambda: nn.MaxUnpool1d(2), (LINE, torch.arange(8).expand(2, 4, 8) * 2)),
    "MaxUnpool2d": (
        lambda: nn.MaxUnpool2d(2), (IMAGE, torch.arange(36).reshape(6, 6).expand(2, 4, 6, 6))
    ),
    "MaxUnpool3d": (
        lambda: nn.MaxUnpool3d(2), (VOLUME, torch.arange(64).reshape(4, 4, 4).expand(2, 4, 4, 4, 4))
    ),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2), (_STEPS, _STEPS, _STEPS)),
    "Sequential": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (ROWS,)),
    "Transformer": (lambda: nn.Transformer(8, 2, 1, 1, 16, 0.0), (_STEPS, _STEPS)),
    "TransformerDecoder": (lambda: nn.TransformerDecoder(_decoder(), 2), (_STEPS, _STEPS)),
    "TransformerDecoderLayer": (_decoder, (_STEPS, _STEPS)),
    "TransformerEncoder": (lambda: nn.TransformerEncoder(_encoder(), 2), (_STEPS,)),
    "TransformerEncoderLayer": (_encoder, (_STEPS,)),
}  # fmt: skip


def _made(name: str, *arguments: object) -> Callable[[], nn.Module]:
    return lambda: getattr(nn, name)(*arguments)


def _cases() -> dict[str, Case]:
    cases = dict(_OTHERS)
    for family, arguments in _PER_RANK.items():
        for rank, x in BY_RANK.items():
            cases[f"{family}{rank}d"] = (_made(f"{family}{rank}d", *arguments), (x,))
    cases["Dropout"] = (_made("Dropout", 0.0), (ROWS,))
    for table, x in ((_OF_ROWS, ROWS), (_OF_IMAGES, IMAGE)):
        cases |= {name: (_made(name, *arguments), (x,)) for name, arguments in table.items()}
    return cases | {name: (_made(name), inputs) for name, inputs in _LOSSES.items()}


CASES = _cases()
ALL = sorted(
    name
    for name, value in vars(nn).items()
    if isinstance(value, type) and issubclass(value, nn.Module)
)
