"""Forms of a model's code whose shapes and branches do not depend on values.

A few models of transformers look at values while they run: they skip layers at random, check
labels, or pick words by a mask. Such code cannot be compiled once. `make_static` puts
code that computes the same in its place, `undo_static` takes it away again.
"""

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput, Seq2SeqSequenceClassifierOutput

from tremula.base.libraries.patching import AttributeChanges
from tremula.frontends.optimum.models.placing import layers_of
from tremula.frontends.poptorch.logging import LOGGER

if TYPE_CHECKING:
    from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2ForPreTrainingOutput

_CHANGES = "_static_forms"


def make_static(model: nn.Module) -> None:
    """Replace code that looks at values; without any, nothing changes."""
    changes = AttributeChanges()
    _static_layer_drop(model, changes)
    for module in list(model.modules()):
        for kind in type(module).__mro__:
            if kind.__name__ in _FORWARD:
                name, function = _FORWARD[kind.__name__]
                changes.set(module, name, MethodType(function, module))
                break
    config: Any = getattr(model, "config", None)
    is_deberta = getattr(config, "model_type", "").startswith("deberta")
    if is_deberta and config.problem_type is None and config.num_labels > 1:
        # Without it, DeBERTa selects the examples that have labels.
        changes.set(config, "problem_type", "single_label_classification")
    vars(model)[_CHANGES] = changes


def undo_static(model: nn.Module) -> None:
    """Give a model its own code back."""
    vars(model).pop(_CHANGES, AttributeChanges()).undo()


# -- layers skipped at random ----------------------------------------------------------------------


def _static_layer_drop(model: nn.Module, changes: AttributeChanges) -> None:
    """Compute every layer, and let a random number decide whether its result counts."""
    chosen: dict[int, float] = {}
    layers = {id(layer): layer for layer in layers_of(model)}
    for module in model.modules():
        share = getattr(module, "layerdrop", None)
        owner: object = module
        if share is None and hasattr(module, "layers"):
            owner = getattr(module, "config", None)
            share = getattr(owner, "layerdrop", None)
        if not isinstance(share, float) or share == 0:
            continue
        inner = [id(m) for m in module.modules() if id(m) in layers]
        chosen |= dict.fromkeys(inner, share)
        changes.set(owner, "layerdrop", 0.0)
    for key, share in chosen.items():
        handle = layers[key].register_forward_hook(_dropping(share), with_kwargs=True)
        changes.on_undo(handle.remove)


def _dropping(share: float) -> Callable[..., object]:
    def hook(layer: nn.Module, args: tuple, kwargs: dict, result: Tensor | tuple) -> Tensor | tuple:
        if not layer.training:
            return result
        before = args[0] if args else kwargs["hidden_states"]
        is_dropped = torch.rand(1, device=before.device) < share
        if isinstance(result, tuple):
            return (torch.where(is_dropped, before, result[0]), *result[1:])
        return torch.where(is_dropped, before, result)

    return hook


# -- sentences classified by their end -------------------------------------------------------------


def _classify_by_end(
    self: Any,  # noqa: ANN401 - any of several classes of transformers
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None,
    decoder_attention_mask: Tensor | None = None,
    labels: Tensor | None = None,
    **kwargs: object,
) -> Seq2SeqSequenceClassifierOutput:
    """BART's and T5's classifiers: the last end of sentence in each row speaks for it."""
    body = self.model if hasattr(self, "model") else self.transformer
    if decoder_input_ids is None and hasattr(self, "_shift_right"):
        decoder_input_ids = self._shift_right(input_ids)
    outputs = body(
        input_ids,
        attention_mask=attention_mask,
        decoder_input_ids=decoder_input_ids,
        decoder_attention_mask=decoder_attention_mask,
        use_cache=False,
        **kwargs,
    )
    hidden = outputs[0]
    places = torch.arange(1, input_ids.shape[1] + 1, device=input_ids.device)
    last = (places * (input_ids == self.config.eos_token_id)).argmax(dim=1)
    end = hidden.gather(1, last.view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])).squeeze(1)
    logits = self.classification_head(end)
    loss = None if labels is None else _classification_loss(self.config, logits, labels)
    return Seq2SeqSequenceClassifierOutput(loss=loss, logits=logits)  # pyright: ignore[reportArgumentType]


class _ClassifierConfig(Protocol):
    problem_type: str | None
    num_labels: int


def _classification_loss(config: _ClassifierConfig, logits: Tensor, labels: Tensor) -> Tensor:
    kind = config.problem_type
    if kind == "regression" or (kind is None and config.num_labels == 1):
        return nn.functional.mse_loss(logits.squeeze(), labels.squeeze())
    if kind == "multi_label_classification" or (kind is None and labels.is_floating_point()):
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return nn.functional.cross_entropy(logits.view(-1, config.num_labels), labels.view(-1))


# -- speech ----------------------------------------------------------------------------------------


def _speech_to_labels(
    self: Any,  # noqa: ANN401 - any of several classes of transformers
    input_values: Tensor,
    attention_mask: Tensor | None = None,
    labels: Tensor | None = None,
    **kwargs: object,
) -> CausalLMOutput:
    """Wav2Vec2's and HuBERT's CTC: labels stay padded instead of being selected."""
    kwargs.pop("return_dict", None)
    outputs = self.base_model(input_values, attention_mask=attention_mask, **kwargs)
    logits = self.lm_head(self.dropout(outputs[0]))
    loss = None
    if labels is not None:
        values = (
            attention_mask if attention_mask is not None else torch.ones_like(input_values).int()
        )
        lengths = self._get_feat_extract_output_lengths(values.sum(-1)).long()
        loss = nn.functional.ctc_loss(
            nn.functional.log_softmax(logits.float(), dim=-1).transpose(0, 1),
            labels.clamp(min=0),
            lengths,
            (labels >= 0).sum(-1),
            blank=self.config.pad_token_id,
            reduction=self.config.ctc_loss_reduction,
            zero_infinity=self.config.ctc_zero_infinity,
        )
    return CausalLMOutput(loss=loss, logits=logits)  # pyright: ignore[reportArgumentType]


def _mask_speech(
    self: Any,  # noqa: ANN401 - any of several classes of transformers
    hidden_states: Tensor,
    mask_time_indices: Tensor | None = None,
    attention_mask: Tensor | None = None,  # noqa: ARG001
) -> Tensor:
    """SpecAugment with the batch's mask; one drawn while recording would never change."""
    config = self.config
    if mask_time_indices is None:
        if self.training and config.apply_spec_augment and config.mask_time_prob > 0:
            LOGGER.warning("SpecAugment is off: the batch has no mask_time_indices.")
        return hidden_states
    is_masked = mask_time_indices.to(torch.bool).unsqueeze(-1)
    return torch.where(is_masked, self.masked_spec_embed.to(hidden_states.dtype), hidden_states)


def _contrast_speech(
    self: Any,  # noqa: ANN401 - any of several classes of transformers
    input_values: Tensor,
    attention_mask: Tensor | None = None,
    mask_time_indices: Tensor | None = None,
    sampled_negative_indices: Tensor | None = None,
    **kwargs: object,
) -> "Wav2Vec2ForPreTrainingOutput":
    """Wav2Vec2's pre-training: negatives equal to the positive are masked, not selected."""
    from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2ForPreTrainingOutput

    is_masked = None if mask_time_indices is None else mask_time_indices.to(torch.bool)
    outputs = self.wav2vec2(
        input_values, attention_mask=attention_mask, mask_time_indices=is_masked, **kwargs
    )
    predicted = self.project_hid(outputs[0])
    features = self.dropout_features(outputs[1])
    quantised, perplexity = self.quantizer(features, mask_time_indices=is_masked)
    quantised = self.project_q(quantised.to(self.project_q.weight.dtype))
    result = Wav2Vec2ForPreTrainingOutput(
        projected_states=predicted,
        projected_quantized_states=quantised,
        codevector_perplexity=perplexity,
    )
    if sampled_negative_indices is None or is_masked is None:
        return result
    n_batch, n_steps, width = quantised.shape
    rows = quantised.reshape(-1, width)[sampled_negative_indices.long().reshape(-1)]
    negatives = rows.view(n_batch, n_steps, -1, width).permute(2, 0, 1, 3)
    logits = self.compute_contrastive_logits(
        quantised[None], negatives, predicted, self.config.contrastive_logits_temperature
    )
    is_same = (quantised == negatives).all(-1)
    never = torch.zeros_like(is_same[:1])
    # A finite number: its gradient is 0, where that of -inf is not a number.
    logits = logits.masked_fill(torch.cat([never, is_same]), torch.finfo(logits.dtype).min)
    target = ((1 - is_masked.long()) * -100).transpose(0, 1).flatten()
    rows_of_logits = logits.transpose(0, 2).reshape(-1, logits.shape[0]).float()
    contrast = nn.functional.cross_entropy(rows_of_logits, target, reduction="sum")
    n_codes = self.config.num_codevectors_per_group * self.config.num_codevector_groups
    diversity = (n_codes - perplexity) / n_codes * is_masked.sum()
    result.loss = contrast + self.config.diversity_loss_weight * diversity
    result.contrastive_loss, result.diversity_loss = contrast, diversity  # pyright: ignore[reportAttributeAccessIssue]
    return result


# What is replaced, by the class (of transformers) that has it.
_FORWARD: dict[str, tuple[str, Callable]] = {
    "BartForSequenceClassification": ("forward", _classify_by_end),
    "MBartForSequenceClassification": ("forward", _classify_by_end),
    "T5ForSequenceClassification": ("forward", _classify_by_end),
    "MT5ForSequenceClassification": ("forward", _classify_by_end),
    "HubertForCTC": ("forward", _speech_to_labels),
    "Wav2Vec2ForCTC": ("forward", _speech_to_labels),
    "Wav2Vec2ForPreTraining": ("forward", _contrast_speech),
    "HubertModel": ("_mask_hidden_states", _mask_speech),
    "Wav2Vec2Model": ("_mask_hidden_states", _mask_speech),
}
