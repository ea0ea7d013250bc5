"""Configurations under the names that were published for common models; the values are ours."""

import copy

from tremula.base.errors import suggest
from tremula.frontends.optimum.errors import IncompatibleIPUConfigError

# For four IPUs each, which is what the published ones used; how layers are cut is by the size of
# the models. What was published besides (accumulation for one data set, cache folders) is left out.
_FOUR: dict[str, object] = {
    "gradient_accumulation_steps": 16,
    "inference_device_iterations": 4,
    "replicated_tensor_sharding": True,
    "matmul_proportion": 0.25,
    "recompute_checkpoint_every_layer": True,
}


def _encoder(layers: list[int], **others: object) -> dict[str, object]:
    return {**_FOUR, "layers_per_ipu": layers, **others}


_OFF_CHIP: dict[str, object] = {"optimizer_state_offchip": True}
_WORDS: dict[str, object] = {"embedding_serialization_factor": 2}
_PUBLISHED: dict[str, dict[str, object]] = {
    "bert-base": _encoder([3, 3, 3, 3]),
    "bert-large": _encoder([3, 7, 7, 7], **_OFF_CHIP),
    "roberta-base": _encoder([3, 3, 3, 3], **_WORDS),
    "roberta-large": _encoder([3, 7, 7, 7], **_OFF_CHIP, **_WORDS),
    "distilbert-base": _encoder([1, 2, 2, 1]),
    "distilroberta-base": _encoder([1, 2, 2, 1], **_WORDS),
    "deberta-base": _encoder([2, 4, 4, 2], **_OFF_CHIP, **_WORDS),
    "mpnet-base": _encoder([3, 3, 3, 3]),
    "gpt2-small": _encoder([0, 4, 4, 4], **_WORDS),
    "gpt2-medium": _encoder([1, 7, 8, 8], **_OFF_CHIP, **_WORDS),
    "bart-base": _encoder([3, 3, 3, 3], **_WORDS),
    "t5-small": _encoder([3, 3, 3, 3]),
    "t5-large": _encoder([6] * 8, **_OFF_CHIP),
    "mt5-small": _encoder([4, 4, 4, 4], projection_serialization_factor=4),
    "mt5-large": _encoder([6] * 8, **_OFF_CHIP, projection_serialization_factor=4),
    "vit-base": _encoder([3, 3, 3, 3]),
    "convnext-base": _encoder([9, 9, 9, 9]),
    "hubert-base": _encoder([3, 3, 3, 3]),
    "wav2vec2-base": _encoder([3, 3, 3, 3]),
    "wav2vec2-large": _encoder([6, 6, 6, 6], **_OFF_CHIP),
    "wav2vec2-ctc-base": _encoder([3, 3, 3, 3]),
    "wav2vec2-ctc-large": _encoder([6, 6, 6, 6], **_OFF_CHIP),
    "whisper-tiny": _encoder([4, 4]),
    "lxmert-base": _encoder([5, 6, 5, 3]),
    "internal-testing-tiny": {"layers_per_ipu": [-1], "matmul_proportion": 0.2},
}
NAMES: tuple[str, ...] = tuple(f"Graphcore/{name}-ipu" for name in _PUBLISHED)


def published_config(name: str) -> dict[str, object]:
    """The fields of a published configuration: `Graphcore/bert-base-ipu` or `bert-base-ipu`."""
    short = name.removeprefix("Graphcore/").removesuffix("-ipu")
    if short not in _PUBLISHED:
        raise IncompatibleIPUConfigError(
            f"{name!r} is neither a folder, nor a file, nor a configuration that comes with "
            "this package",
            hint=suggest(name, NAMES),
        )
    return copy.deepcopy(_PUBLISHED[short])
