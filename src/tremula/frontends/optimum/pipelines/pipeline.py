"""`pipeline(task, model, ipu_config)`: transformers' pipelines on compiled models."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from transformers import (
    BaseImageProcessor,
    FeatureExtractionMixin,
    Pipeline,
    PreTrainedTokenizerBase,
)

from tremula.base.errors import PoplarError, suggest
from tremula.frontends.optimum.generation.mixin import generating
from tremula.frontends.optimum.ipu_config import IPUConfig
from tremula.frontends.optimum.models.pipelined import PipelineMixin, to_pipelined
from tremula.frontends.optimum.pipelines.compiled import CompiledForward
from tremula.frontends.optimum.pipelines.removed import (
    IPUQuestionAnsweringPipeline,
    IPUSummarizationPipeline,
    IPUText2TextGenerationPipeline,
    IPUTranslationPipeline,
)


@dataclass(frozen=True)
class PipelineTask:
    """What a task needs: a class of models, a pipeline of ours if transformers has none."""

    auto_class: str
    default_model: str
    default_ipu_config: str
    own_pipeline: type[Pipeline] | None = None
    generates: bool = False
    reads: str = "tokenizer"  # or feature_extractor, image_processor


TASKS: dict[str, PipelineTask] = {
    "audio-classification": PipelineTask(
        "AutoModelForAudioClassification",
        "superb/hubert-base-superb-ks",
        "hubert-base",
        reads="feature_extractor",
    ),
    "automatic-speech-recognition": PipelineTask(
        "AutoModelForCTC",
        "facebook/wav2vec2-base-960h",
        "wav2vec2-ctc-base",
        reads="feature_extractor",
    ),
    "fill-mask": PipelineTask("AutoModelForMaskedLM", "roberta-base", "roberta-base"),
    "image-classification": PipelineTask(
        "AutoModelForImageClassification",
        "google/vit-base-patch16-224",
        "vit-base",
        reads="image_processor",
    ),
    "question-answering": PipelineTask(
        "AutoModelForQuestionAnswering",
        "distilbert-base-cased-distilled-squad",
        "distilbert-base",
        IPUQuestionAnsweringPipeline,
    ),
    "text-classification": PipelineTask(
        "AutoModelForSequenceClassification",
        "distilbert-base-uncased-finetuned-sst-2-english",
        "distilbert-base",
    ),
    "token-classification": PipelineTask(
        "AutoModelForTokenClassification",
        "dbmdz/bert-large-cased-finetuned-conll03-english",
        "bert-large",
    ),
    "text-generation": PipelineTask("AutoModelForCausalLM", "gpt2", "gpt2-small", generates=True),
    "summarization": PipelineTask(
        "AutoModelForSeq2SeqLM", "ainize/bart-base-cnn", "bart-base",
        IPUSummarizationPipeline, generates=True,
    ),
    "translation": PipelineTask(
        "AutoModelForSeq2SeqLM", "t5-small", "t5-small", IPUTranslationPipeline, generates=True,
    ),
    "text2text-generation": PipelineTask(
        "AutoModelForSeq2SeqLM", "t5-small", "t5-small",
        IPUText2TextGenerationPipeline, generates=True,
    ),
    "zero-shot-classification": PipelineTask(
        "AutoModelForSequenceClassification", "roberta-large-mnli", "roberta-large",
    ),
}  # fmt: skip
_ALIASES = {"sentiment-analysis": "text-classification", "ner": "token-classification"}


def task_named(name: str) -> tuple[str, PipelineTask]:
    """A task and its usual name; `translation_en_to_de` is a translation."""
    usual = _ALIASES.get(name, "translation" if name.startswith("translation_") else name)
    if usual not in TASKS:
        known = [*TASKS, *_ALIASES, "translation_en_to_de"]
        raise PoplarError(f"there is no task {name!r}", hint=suggest(name, known))
    return usual, TASKS[usual]


def pipeline(
    task: str,
    model: str | nn.Module | None = None,
    ipu_config: str | dict[str, object] | IPUConfig | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    feature_extractor: FeatureExtractionMixin | None = None,
    *,
    image_processor: BaseImageProcessor | None = None,
    fp16: bool = True,
    max_length: int = 128,
    **kwargs: Any,  # noqa: ANN401 - those of transformers.pipeline
) -> Pipeline:
    """A pipeline of transformers whose model is compiled.

    `model` is a folder, a name, or a model; `ipu_config` says how it is spread (one IPU, if nothing
    says so). Rows of words are filled up to `max_length`. `fp16` computes in half, as IPUs do.
    """
    usual, result = task_named(task)
    name = model if isinstance(model, str) else None
    if model is None:
        name, ipu_config = result.default_model, ipu_config or result.default_ipu_config
    loaded = model if isinstance(model, nn.Module) else _loaded(result, name or "")
    config = _config(ipu_config)
    ready: Any = _compiled(
        loaded, config, result, fp16=fp16, max_length=max_length, pad=_pad(tokenizer)
    )
    readers = {
        "tokenizer": tokenizer,
        "feature_extractor": feature_extractor,
        "image_processor": image_processor,
    }
    if name is not None:
        readers |= _readers(result, name, readers)
    values = {key: value for key, value in readers.items() if value is not None}
    if result.own_pipeline is not None:
        made = result.own_pipeline(model=ready, task=task, device=-1, **values, **kwargs)
    else:
        made = transformers.pipeline(usual, model=ready, device=-1, **values, **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return made


def _loaded(task: PipelineTask, name: str) -> nn.Module:
    return getattr(transformers, task.auto_class).from_pretrained(name)


def _readers(task: PipelineTask, name: str, known: Mapping[str, object]) -> dict[str, object]:
    """What turns text, sound or pictures into tensors, from the model's folder."""
    autos = {
        "tokenizer": "AutoTokenizer",
        "feature_extractor": "AutoFeatureExtractor",
        "image_processor": "AutoImageProcessor",
    }
    wanted = {task.reads}
    if task.auto_class == "AutoModelForCTC":
        wanted.add("tokenizer")
    return {
        key: getattr(transformers, autos[key]).from_pretrained(name)
        for key in wanted
        if known[key] is None
    }


def _config(config: str | dict[str, object] | IPUConfig | None) -> IPUConfig:
    if config is None:
        return IPUConfig()
    if isinstance(config, dict):
        return IPUConfig.from_dict(config)
    return IPUConfig.from_pretrained(config) if isinstance(config, str) else config.clone()


def _pad(tokenizer: PreTrainedTokenizerBase | None) -> int:
    return getattr(tokenizer, "pad_token_id", None) or 0


def _compiled(
    model: nn.Module,
    config: IPUConfig,
    task: PipelineTask,
    *,
    fp16: bool,
    max_length: int,
    pad: int,
) -> nn.Module:
    """The model spread over IPUs, its forward (or its generation) compiled."""
    spread = to_pipelined(model, config.eval(), force=True).eval()
    generates = task.generates or _writes_speech_down(model, task)
    if isinstance(spread, PipelineMixin):
        requested = config.value("parallelize_kwargs", for_inference=True)
        spread.parallelize(**{"for_generation": generates, **requested})
    spread = spread.half() if fp16 else spread.float()
    if generates:
        return _as_transformers_knows_it(generating(spread), type(model).__name__)
    options = functools.partial(config.to_options, for_inference=True)
    compiled = CompiledForward(spread, options, max_length=max_length, pad_token_id=pad)
    vars(spread)["forward"] = functools.partial(_with_right_types, compiled, spread)
    return _as_transformers_knows_it(spread, type(model).__name__)


def _writes_speech_down(model: nn.Module, task: PipelineTask) -> bool:
    """Whether speech is recognised by writing, as Whisper does, not letter by letter."""
    return task.auto_class == "AutoModelForCTC" and getattr(
        model.config, "is_encoder_decoder", False
    )


def _as_transformers_knows_it(model: nn.Module, name: str) -> nn.Module:
    """The model itself; its pipelines look at the name of its class."""
    model.__class__ = type(name, (type(model),), {"__module__": __name__})
    return model


def _with_right_types(compiled: CompiledForward, model: nn.Module, **inputs: object) -> object:
    """Pictures and sounds come as float32, whatever the model computes in."""
    dtype = next(model.parameters()).dtype
    cast = {
        name: value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    return compiled(**cast)
