"""The families of models that Optimum pipelined, tiny, with a batch each: text, sound, pictures."""

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tremula.garden.models.tiny_transformers import tiny_config, tiny_inputs

# The classes of transformers by family. GroupBERT, which transformers does not have, is missing.
FAMILIES: dict[str, tuple[str, ...]] = {
    "BART": ("BartForConditionalGeneration", "BartForSequenceClassification"),
    "BERT": (
        "BertForMaskedLM", "BertForMultipleChoice", "BertForPreTraining",
        "BertForQuestionAnswering", "BertForSequenceClassification", "BertForTokenClassification",
    ),
    "ConvNeXt": ("ConvNextForImageClassification",),
    "DeBERTa": (
        "DebertaForMaskedLM", "DebertaForQuestionAnswering", "DebertaForSequenceClassification",
        "DebertaForTokenClassification",
    ),
    "DistilBERT": (
        "DistilBertForMaskedLM", "DistilBertForMultipleChoice", "DistilBertForQuestionAnswering",
        "DistilBertForSequenceClassification", "DistilBertForTokenClassification",
    ),
    "GPT-2": (
        "GPT2LMHeadModel", "GPT2ForSequenceClassification", "GPT2ForTokenClassification",
    ),
    "HuBERT": ("HubertForCTC", "HubertForSequenceClassification"),
    "LXMERT": ("LxmertForQuestionAnswering",),
    "MPNet": (
        "MPNetForMaskedLM", "MPNetForMultipleChoice", "MPNetForQuestionAnswering",
        "MPNetForSequenceClassification", "MPNetForTokenClassification",
    ),
    "mT5": ("MT5ForConditionalGeneration",),
    "RoBERTa": (
        "RobertaForMaskedLM", "RobertaForMultipleChoice", "RobertaForQuestionAnswering",
        "RobertaForSequenceClassification", "RobertaForTokenClassification",
    ),
    "T5": ("T5ForConditionalGeneration",),
    "ViT": ("ViTForImageClassification",),
    "Wav2Vec2": ("Wav2Vec2ForCTC", "Wav2Vec2ForPreTraining"),
    "Whisper": ("WhisperForConditionalGeneration",),
}  # fmt: skip
CLASSES: tuple[str, ...] = tuple(name for names in FAMILIES.values() for name in names)

N_BATCH, N_SAMPLES = 2, 400
_SPEECH: dict[str, Any] = {
    "conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8,
    "num_codevectors_per_group": 4, "num_codevector_groups": 2, "codevector_dim": 8,
    "proj_codevector_dim": 8, "num_negatives": 3, "mask_time_prob": 0.1, "mask_time_length": 2,
    "apply_spec_augment": True, "ctc_loss_reduction": "mean", "ctc_zero_infinity": True,
}  # fmt: skip
_PICTURES_AND_WORDS: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
    "l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 8, "num_qa_labels": 5,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 64,
}  # fmt: skip


@dataclass(frozen=True)
class FamilyModel:
    """A model with random weights, and a batch of what its forward takes."""

    model: nn.Module
    batch: dict[str, Tensor]

    @property
    def inference_batch(self) -> dict[str, Tensor]:
        """The batch without labels, except where a decoder's words are made from them."""
        config: Any = self.model.config
        if getattr(config, "is_encoder_decoder", False):
            return self.batch
        return {k: v for k, v in self.batch.items() if "label" not in k and "_positions" not in k}


def tiny_family_model(name: str) -> FamilyModel:
    """The class of this name; its weights depend on nothing but it."""
    kind = getattr(transformers, name)
    config = _config(kind)
    torch.manual_seed(0)
    model = kind(config)
    return FamilyModel(model, _batch(name, model))


def _config(kind: Any) -> Any:  # noqa: ANN401
    config = tiny_config(kind.config_class)
    if config.model_type in ("wav2vec2", "hubert"):
        return kind.config_class(**{**config.to_diff_dict(), **_SPEECH})
    if config.model_type == "lxmert":
        return kind.config_class(**_PICTURES_AND_WORDS)
    if config.model_type == "whisper":
        config.num_mel_bins, config.max_source_positions = 8, 16
        config.max_target_positions = 16
        config.bos_token_id = config.eos_token_id = 2
    return config


def _batch(name: str, model: Any) -> dict[str, Tensor]:  # noqa: ANN401
    draw = torch.Generator().manual_seed(1)

    def whole(*shape: int, low: int = 3, high: int = 30) -> Tensor:
        return torch.randint(low, high, shape, generator=draw)

    kind = model.config.model_type
    if kind in ("wav2vec2", "hubert"):
        sound = {"input_values": torch.randn(N_BATCH, N_SAMPLES, generator=draw)}
        return sound | _speech_targets(name, model, whole)
    if kind == "whisper":
        sound = torch.randn(N_BATCH, 8, 32, generator=draw)
        return {"input_features": sound, "labels": whole(N_BATCH, 8)}
    if kind == "lxmert":
        return {
            "input_ids": whole(N_BATCH, 8),
            "visual_feats": torch.randn(N_BATCH, 5, 8, generator=draw),
            "visual_pos": torch.rand(N_BATCH, 5, 4, generator=draw),
            "labels": whole(N_BATCH, low=0, high=5),
        }
    return tiny_inputs(name, model)


def _speech_targets(name: str, model: Any, whole: Any) -> dict[str, Tensor]:  # noqa: ANN401
    n_steps = int(model._get_feat_extract_output_lengths(N_SAMPLES))
    is_masked = torch.zeros(N_BATCH, n_steps, dtype=torch.bool)
    is_masked[:, 2:6] = True
    if name.endswith("CTC"):
        return {"labels": whole(N_BATCH, 4, low=1)}
    if name.endswith("PreTraining"):
        rows = torch.arange(N_BATCH).view(-1, 1, 1) * n_steps
        negatives = whole(N_BATCH, n_steps, 3, low=0, high=n_steps) + rows
        return {"mask_time_indices": is_masked, "sampled_negative_indices": negatives}
    return {"labels": whole(N_BATCH, low=0, high=2)}
