"""Pipelined models: a class of transformers that knows how to spread itself over IPUs."""

import copy
import functools
from collections.abc import Callable
from typing import Any, Self

import transformers
from torch import nn
from transformers import GenerationMixin

import poptorch
from tremula.base.errors import suggest
from tremula.frontends.optimum.errors import NotPipelinable
from tremula.frontends.optimum.generation.mixin import IPUGenerationMixin
from tremula.frontends.optimum.ipu_config import IPUConfig
from tremula.frontends.optimum.models.layers import (
    SerializedEmbedding,
    SerializedLinear,
    SplitProjection,
    outline_attribute,
    recomputation_checkpoint,
)
from tremula.frontends.optimum.models.placing import get_layer_ipu, heads_of, layers_of
from tremula.frontends.optimum.models.static_forms import make_static, undo_static

_REGISTERED: dict[type, type] = {}  # a class of transformers (or a user's) → its pipelined class


def register(transformers_cls: type) -> Callable[[type], type]:
    """Decorate a class that pipelines `transformers_cls` in its own way."""

    def registered(pipelined_cls: type) -> type:
        for base in (PipelineMixin, transformers_cls):
            if not issubclass(pipelined_cls, base):
                raise NotPipelinable(
                    f"{pipelined_cls.__name__} must derive from {base.__name__} to be registered"
                )
        _REGISTERED[transformers_cls] = pipelined_cls
        return pipelined_cls

    return registered


class PipelineMixin:
    """Placing over IPUs: `parallelize()` marks blocks, `deparallelize()` removes every mark."""

    _ipu_config: IPUConfig | None = None

    @classmethod
    def from_transformers(cls, model: nn.Module, ipu_config: IPUConfig) -> Self:
        """A pipelined copy of a model."""
        made: Any = copy.deepcopy(model)
        made.__class__ = cls
        made._ipu_config = ipu_config.clone()
        return made

    from_model = from_transformers

    @classmethod
    def from_pretrained_transformers(
        cls,
        name_or_path: str,
        ipu_config: IPUConfig,
        *args: object,
        **kwargs: object,
    ) -> Self:
        """A pipelined model with weights that transformers saved in a folder."""
        model = cls.from_pretrained(name_or_path, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        model._ipu_config = ipu_config.clone()
        return model

    @property
    def ipu_config(self) -> IPUConfig:
        """How this model is spread over IPUs."""
        if self._ipu_config is None:
            raise AttributeError(
                f"{type(self).__name__} has no ipu_config yet: assign one, or make the model with "
                "from_transformers(model, ipu_config)"
            )
        return self._ipu_config

    @ipu_config.setter
    def ipu_config(self, value: IPUConfig) -> None:
        if not isinstance(value, IPUConfig):
            raise TypeError(f"ipu_config must be an IPUConfig, got {type(value).__name__}")
        self._ipu_config = value

    def parallelize(
        self,
        for_generation: bool = False,
        on_device_generation_steps: int | None = None,
        **_: object,
    ) -> Self:
        """Mark which parts run on which IPU, cut large tables, and make the code static.

        With `on_device_generation_steps`, `generate` finds that many words in each call; 0 lets the
        host search.
        """
        model: nn.Module = self  # pyright: ignore[reportAssignmentType]
        config = self.ipu_config
        layers = layers_of(model)
        ipus = get_layer_ipu(config, len(layers))
        self.deparallelize()
        vars(self)["on_device_generation_steps"] = on_device_generation_steps
        make_static(model)
        _cut_tables(model, config)
        if config.ipus_per_replica > 1:
            _place(model, layers, ipus)
        handles = []
        if config.recompute_checkpoint_every_layer and not for_generation:
            handles = [recomputation_checkpoint(layer) for layer in layers]
        for module in _embedding_norms(model):
            handles += outline_attribute(module, "embedding")
        vars(self)["_hooks_of_ipus"] = handles
        return self

    def deparallelize(self) -> Self:
        """Leave nothing of `parallelize` behind."""
        model: nn.Module = self  # pyright: ignore[reportAssignmentType]
        for handle in vars(self).pop("_hooks_of_ipus", []):
            handle.remove()
        poptorch.removeBlocks(model)
        _join_tables(model)
        undo_static(model)
        return self


def _place(model: nn.Module, layers: list[nn.Module], ipus: list[int]) -> None:
    """Begin a block where the IPU changes; embeddings and heads lie on the first one."""
    poptorch.BeginBlock(model, "embedding", ipu_id=0)
    before = 0
    for number, (layer, ipu) in enumerate(zip(layers, ipus, strict=True)):
        if ipu != before:
            poptorch.BeginBlock(layer, f"layer {number}", ipu_id=ipu)
            before = ipu
    for head in heads_of(model):
        poptorch.BeginBlock(head, "head", ipu_id=0)


def _embedding_norms(model: nn.Module) -> list[nn.Module]:
    """Norms of embeddings: shaped like those of layers, but they run elsewhere."""
    result = []
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm) and "embed" in name:
            result.append(module)
    return result


# -- tables in parts -------------------------------------------------------------------------------


def _cut_tables(model: nn.Module, config: IPUConfig) -> None:
    """Cut the vocabulary's table and product as the configuration says."""
    table, head = (
        _table_of(model, "get_input_embeddings"),
        _table_of(model, "get_output_embeddings"),
    )
    is_tied = head is not None and table is not None and head.weight is table.weight
    factor = config.embedding_serialization_factor
    splits = config.serialized_embedding_splits_per_ipu
    if is_tied:  # the product is what needs memory; a tied table cannot be cut by itself
        factor_of_head = config.projection_serialization_factor or factor
        if factor_of_head is not None and factor_of_head > 1:
            _set_head(model, SerializedLinear.from_model(head, factor_of_head))  # pyright: ignore[reportArgumentType]
        return
    if isinstance(table, nn.Embedding) and (splits or (factor or 1) > 1):
        ipus = None if splits is None else [i for i, n in enumerate(splits) for _ in range(n)]
        cut = SerializedEmbedding(table, factor or len(ipus or ()), ipus)
        model.set_input_embeddings(cut)  # pyright: ignore[reportCallIssue]
    if isinstance(head, nn.Linear):
        _cut_head(model, head, config)


def _table_of(model: nn.Module, getter: str) -> nn.Module | None:
    """A model's words, in or out; None for models that have none."""
    try:
        return getattr(model, getter)()
    except (AttributeError, NotImplementedError):  # images and sounds
        return None


def _cut_head(model: nn.Module, head: nn.Linear, config: IPUConfig) -> None:
    factor = config.projection_serialization_factor
    splits = config.serialized_projection_splits_per_ipu
    if splits is not None:
        _set_head(model, SplitProjection(head, splits))
    elif factor is not None and factor > 1:
        _set_head(model, SerializedLinear.from_model(head, factor))


def _set_head(model: Any, head: nn.Module) -> None:  # noqa: ANN401
    model.set_output_embeddings(head)


def _join_tables(model: nn.Module) -> None:
    """Put whole tables back."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, SerializedEmbedding | SerializedLinear | SplitProjection):
                setattr(parent, name, child.deserialize())


# -- classes by name -------------------------------------------------------------------------------


@functools.cache
def pipelined_class(model_cls: type) -> type:
    """The pipelined class of any class of transformers: registered, or made by rule."""
    if issubclass(model_cls, PipelineMixin):
        return model_cls
    if model_cls in _REGISTERED:
        return _REGISTERED[model_cls]
    name = f"Pipelined{model_cls.__name__}"
    doc = f"`{model_cls.__name__}` of transformers, spread over IPUs."
    writes = issubclass(model_cls, GenerationMixin)
    mixins = (PipelineMixin, IPUGenerationMixin) if writes else (PipelineMixin,)
    return type(name, (*mixins, model_cls), {"__doc__": doc, "__module__": __name__})


def pipelined_class_by_name(name: str) -> type:
    """The class `PipelinedX`, for any model X of transformers."""
    original = getattr(transformers, name.removeprefix("Pipelined"), None)
    if not name.startswith("Pipelined") or not isinstance(original, type):
        known = [f"Pipelined{n}" for n in dir(transformers) if "For" in n and "TF" not in n[:2]]
        raise AttributeError(f"optimum.graphcore has no {name!r}: {suggest(name, known)}")
    return pipelined_class(original)


def to_pipelined(model: nn.Module, ipu_config: IPUConfig, force: bool = False) -> nn.Module:
    """A pipelined copy of a model.

    A model without a list of equal layers is an error; with `force` it comes back as it is, for a
    single IPU.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"to_pipelined needs a model, got {type(model).__name__}")
    if isinstance(model, PipelineMixin):
        model.ipu_config = ipu_config
        return model
    try:
        layers_of(model)
    except NotPipelinable:
        if force:
            return copy.deepcopy(model)
        raise
    return pipelined_class(type(model)).from_transformers(model, ipu_config)  # pyright: ignore[reportAttributeAccessIssue]
