"""Optimum Graphcore: transformers' trainers, pipelines and generation on modelled IPUs."""

from importlib import import_module
from typing import TYPE_CHECKING

from tremula.base.errors import suggest as _suggest

if TYPE_CHECKING:
    from tremula.frontends.optimum.errors import (
        IncompatibleIPUConfigError as IncompatibleIPUConfigError,
    )
    from tremula.frontends.optimum.ipu_config import IPUConfig as IPUConfig
    from tremula.frontends.optimum.pipelines.pipeline import pipeline as pipeline
    from tremula.frontends.optimum.training.arguments import (
        IPUSeq2SeqTrainingArguments as IPUSeq2SeqTrainingArguments,
    )
    from tremula.frontends.optimum.training.arguments import (
        IPUTrainingArguments as IPUTrainingArguments,
    )
    from tremula.frontends.optimum.training.trainer import IPUSeq2SeqTrainer as IPUSeq2SeqTrainer
    from tremula.frontends.optimum.training.trainer import IPUTrainer as IPUTrainer

import_module("tremula.frontends.optimum")  # fails at once without transformers
__version__ = "0.7.0"

# Where names are found, by module of tremula.frontends.optimum; loaded on first use.
_NAMES = {
    "errors": "IncompatibleIPUConfigError",
    "ipu_config": "IPUConfig",
    "models.pipelined": "PipelineMixin to_pipelined register",
    "pipelines.pipeline": "pipeline",
    "training.arguments": "IPUSeq2SeqTrainingArguments IPUTrainingArguments",
    "training.trainer": "IPUSeq2SeqTrainer IPUTrainer",
    "generation.mixin": "IPUGenerationMixin generating",
    "packing": "PackedBertForSequenceClassification PackedDataset pack_lengths",
}
_PLACE = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_PLACE]  # noqa: PLE0604 - strings


def __getattr__(name: str) -> object:
    if name in _PLACE:
        module = import_module(f"tremula.frontends.optimum.{_PLACE[name]}")
        return getattr(module, name)
    if name.startswith("Pipelined"):  # any model of transformers
        from tremula.frontends.optimum.models.pipelined import pipelined_class_by_name

        return pipelined_class_by_name(name)
    raise AttributeError(f"optimum.graphcore has no {name!r}: {_suggest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
