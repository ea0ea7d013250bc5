"""Models of transformers with random weights, small enough for tiles: any class, by its name."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

N_BATCH, N_WORDS, VOCABULARY, IMAGE_SIZE = 2, 8, 64, 32

# Whatever a configuration calls its sizes. Values that are lists keep their length.
_SIZES: dict[str, object] = {
    **dict.fromkeys(
        "hidden_size d_model n_embd dim emb_dim embedding_size hidden_dim_size encoder_hidden_dim "
        "d_embed word_embed_proj_dim projection_dim rotary_dim_size".split(),
        16,
    ),
    **dict.fromkeys(
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
        "decoder_attention_heads num_key_value_heads num_kv_heads num_decoder_attention_heads "
        "num_encoder_attention_heads n_heads".split(),
        2,
    ),
    **dict.fromkeys("head_dim d_kv attention_head_size".split(), 8),
    **dict.fromkeys(
        "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner d_inner dff "
        "ffn_hidden_size hidden_dim num_encoder_ffn moe_intermediate_size bottleneck_size".split(),
        32,
    ),
    **dict.fromkeys(
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
        "num_decoder_layers num_encoder_layers".split(),
        2,
    ),
    **dict.fromkeys(
        "max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length".split(), 64
    ),
    "vocab_size": VOCABULARY,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sliding_window": 4,
    "num_labels": 2,
    "image_size": IMAGE_SIZE,
    "patch_size": 8,
    "use_cache": False,
}
_FOUR: dict[str, object] = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
_FOUR_HEADS: dict[str, object] = {**_FOUR, "num_attention_heads": [1, 1, 2, 2]}
_WINDOWS: dict[str, object] = {
    "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4, "patch_size": 4,
}  # fmt: skip
# Without it, DeBERTa selects the labels to count by a mask: a shape that depends on values.
_ONE_CLASS_EACH: dict[str, object] = {"problem_type": "single_label_classification"}
# What a configuration needs besides, by its model type.
_SPECIAL: dict[str, dict[str, object]] = {
    "albert": {"inner_group_num": 1},
    "bit": {**_FOUR, "embedding_size": 8, "num_groups": 4},
    "canine": {"num_hash_buckets": 32, "local_transformer_stride": 4, "downsampling_rate": 2},
    "convnext": {**_FOUR, "patch_size": 2},
    "convnextv2": {**_FOUR, "patch_size": 2},
    "deberta": {"relative_attention": True, "pos_att_type": "c2p|p2c", **_ONE_CLASS_EACH},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], **_ONE_CLASS_EACH},
    "distilbert": {"hidden_dim": 32},
    "focalnet": {
        "embed_dim": 8, "depths": [1, 1], "focal_levels": [1, 1], "focal_windows": [3, 3],
        "patch_size": 4,
    },
    "funnel": {"block_sizes": [1, 1], "d_head": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "gptj": {"rotary_dim": 4},
    "mobilebert": {"true_hidden_size": 16, "intra_bottleneck_size": 16},
    "mobilevit": {
        "hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 16],
        "patch_size": 2,
    },
    "mt5": {"relative_attention_num_buckets": 8},
    "poolformer": {**_FOUR, "patch_size": 7},
    "pvt": _FOUR_HEADS,
    "regnet": {**_FOUR, "embedding_size": 8, "groups_width": 4},
    "resnet": {**_FOUR, "embedding_size": 8},
    "segformer": {**_FOUR_HEADS, "decoder_hidden_size": 16},
    "swin": _WINDOWS,
    "swinv2": _WINDOWS,
    "t5": {"relative_attention_num_buckets": 8},
    "umt5": {"relative_attention_num_buckets": 8},
}  # fmt: skip


# The classes that are run: of each kind of body several heads, of most families one or two.
CLASSES: tuple[str, ...] = tuple(
    """
    AlbertForMaskedLM AlbertForPreTraining AlbertForQuestionAnswering
    AlbertForSequenceClassification AlbertForTokenClassification ApertusForCausalLM
    ArceeForCausalLM BartForCausalLM BartForConditionalGeneration
    BartForSequenceClassification BeitForImageClassification BertForMaskedLM
    BertForMultipleChoice BertForNextSentencePrediction BertForPreTraining
    BertForQuestionAnswering BertForSequenceClassification BertForTokenClassification
    BigBirdForMaskedLM BioGptForCausalLM BioGptForSequenceClassification
    BitForImageClassification BlenderbotForConditionalGeneration
    BlenderbotSmallForConditionalGeneration BloomForCausalLM BloomForSequenceClassification
    CamembertForMaskedLM CamembertForSequenceClassification CanineForSequenceClassification
    Cohere2ForCausalLM CohereForCausalLM ConvBertForMaskedLM ConvBertForTokenClassification
    ConvNextForImageClassification ConvNextV2ForImageClassification
    CTRLForSequenceClassification CTRLLMHeadModel Data2VecTextForMaskedLM
    Data2VecVisionForImageClassification DebertaForMaskedLM DebertaForSequenceClassification
    DebertaForTokenClassification DebertaV2ForMaskedLM DebertaV2ForQuestionAnswering
    DebertaV2ForSequenceClassification DeiTForImageClassification DiffLlamaForCausalLM
    Dinov2ForImageClassification DistilBertForMaskedLM DistilBertForQuestionAnswering
    DistilBertForSequenceClassification DistilBertForTokenClassification ElectraForCausalLM
    ElectraForMaskedLM ElectraForQuestionAnswering ElectraForSequenceClassification
    ElectraForTokenClassification ErnieForMaskedLM ErnieForSequenceClassification
    EsmForMaskedLM EsmForSequenceClassification EsmForTokenClassification EuroBertForMaskedLM
    EuroBertForSequenceClassification Exaone4ForCausalLM FalconForCausalLM
    FalconForSequenceClassification FNetForMaskedLM FNetForSequenceClassification
    FocalNetForImageClassification FunnelForMaskedLM Gemma2ForCausalLM Gemma3ForCausalLM
    GemmaForCausalLM GemmaForSequenceClassification Glm4ForCausalLM GlmForCausalLM
    GPT2ForSequenceClassification GPT2ForTokenClassification GPT2LMHeadModel
    GPTBigCodeForCausalLM GPTJForCausalLM GPTJForSequenceClassification GPTNeoForCausalLM
    GPTNeoForSequenceClassification GPTNeoXForCausalLM GPTNeoXForSequenceClassification
    GPTNeoXJapaneseForCausalLM GraniteForCausalLM HeliumForCausalLM HunYuanDenseV1ForCausalLM
    IBertForMaskedLM IJepaForImageClassification LlamaForCausalLM
    LlamaForSequenceClassification LlamaForTokenClassification LongformerForMaskedLM
    M2M100ForConditionalGeneration MambaForCausalLM MarianForCausalLM
    MBartForConditionalGeneration MBartForSequenceClassification MegatronBertForMaskedLM
    MegatronBertForQuestionAnswering MinistralForCausalLM MistralForCausalLM
    MistralForSequenceClassification MixtralForCausalLM MobileBertForMaskedLM
    MobileBertForSequenceClassification MobileViTForImageClassification
    ModernBertDecoderForCausalLM ModernBertForMaskedLM ModernBertForSequenceClassification
    MptForCausalLM MraForMaskedLM MT5ForConditionalGeneration MvpForConditionalGeneration
    NemotronForCausalLM NomicBertForMaskedLM NystromformerForMaskedLM
    NystromformerForSequenceClassification Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM
    OpenAIGPTForSequenceClassification OpenAIGPTLMHeadModel OPTForCausalLM
    OPTForSequenceClassification PegasusForConditionalGeneration
    PegasusXForConditionalGeneration PersimmonForCausalLM Phi3ForCausalLM PhiForCausalLM
    PhiForSequenceClassification PLBartForConditionalGeneration
    PoolFormerForImageClassification PvtForImageClassification Qwen2ForCausalLM
    Qwen2ForSequenceClassification Qwen3ForCausalLM Qwen3ForSequenceClassification
    RecurrentGemmaForCausalLM RegNetForImageClassification ResNetForImageClassification
    RobertaForCausalLM RobertaForMaskedLM RobertaForQuestionAnswering
    RobertaForSequenceClassification RobertaForTokenClassification
    RobertaPreLayerNormForMaskedLM RoFormerForMaskedLM RoFormerForSequenceClassification
    RwkvForCausalLM SeedOssForCausalLM SegformerForImageClassification SmolLM3ForCausalLM
    SplinterForQuestionAnswering SqueezeBertForMaskedLM SqueezeBertForSequenceClassification
    StableLmForCausalLM Starcoder2ForCausalLM SwinForImageClassification
    Swinv2ForImageClassification T5ForConditionalGeneration T5ForSequenceClassification
    UMT5ForConditionalGeneration ViTForImageClassification ViTMSNForImageClassification
    XGLMForCausalLM XLMRobertaForMaskedLM XLMRobertaForSequenceClassification
    XLMRobertaXLForMaskedLM XLNetForSequenceClassification XLNetLMHeadModel YosoForMaskedLM
""".split()
)


def tiny_config(kind: type) -> Any:  # noqa: ANN401 - a configuration of transformers
    """A configuration of the given class with every size small and nothing dropped."""
    default = kind()
    chosen = {name: value for name, value in _SIZES.items() if _can_be_set(default, name)}
    for name, value in vars(default).items():
        if isinstance(value, float) and ("drop" in name or "noise" in name):
            chosen[name] = 0.0
    chosen |= _SPECIAL.get(default.model_type, {})
    config = kind(**chosen)
    config.decoder_start_token_id = 1
    return config


def _can_be_set(config: object, name: str) -> bool:
    """Whether a configuration stores this size itself, rather than deriving it."""
    if isinstance(getattr(type(config), name, None), property):
        return False
    return hasattr(config, name) and not isinstance(getattr(config, name), list | tuple)


@dataclass(frozen=True)
class TinyModel:
    """A model that returns its loss, and one batch for it."""

    model: nn.Module
    batch: tuple[Tensor, ...]


class _WithLoss(nn.Module):
    """Takes the batch by position and returns the loss alone."""

    def __init__(self, model: nn.Module, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> Tensor:
        import poptorch  # named here: only a step of PopTorch needs it

        result = self.model(**dict(zip(self.names, tensors, strict=True)))
        loss = result.loss if hasattr(result, "loss") else result[0]
        return poptorch.identity_loss(loss, reduction="none")


def tiny_model(name: str) -> TinyModel:
    """The class of this name with weights that depend on nothing but it."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(tiny_config(kind.config_class)).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    inputs = tiny_inputs(name, model)
    return TinyModel(_WithLoss(model, list(inputs)), tuple(inputs.values()))


def tiny_inputs(name: str, model: nn.Module) -> dict[str, Tensor]:
    """A batch of what the forward of a class takes, with labels."""
    parameters = inspect.signature(model.forward).parameters
    draw = torch.Generator().manual_seed(1)

    def ids(*shape: int, low: int = 3, high: int = VOCABULARY) -> Tensor:
        return torch.randint(low, high, shape, generator=draw)

    if "pixel_values" in parameters:
        size: int = getattr(model.config, "image_size", IMAGE_SIZE)  # pyright: ignore[reportAssignmentType]
        result = {"pixel_values": torch.randn(N_BATCH, 3, size, size, generator=draw)}
    else:
        shape = (N_BATCH, 2, N_WORDS) if name.endswith("MultipleChoice") else (N_BATCH, N_WORDS)
        words = ids(*shape)
        words[..., -1] = 2  # sentences end: some classes look for the end
        result = {"input_ids": words}
        if "attention_mask" in parameters:
            mask = torch.ones(shape, dtype=torch.long)
            mask[-1, ..., -2:] = 0  # the last sentence is shorter
            result["attention_mask"] = mask
    return result | _labels(name, parameters, ids)


def _labels(name: str, labels: Any, ids: Any) -> dict[str, Tensor]:  # noqa: ANN401
    if "start_positions" in labels:
        return {
            key: ids(N_BATCH, low=0, high=N_WORDS - 2)
            for key in ("start_positions", "end_positions")
        }
    if name.endswith("SemanticSegmentation"):
        return {"labels": ids(N_BATCH, IMAGE_SIZE, IMAGE_SIZE, low=0, high=2)}
    if name.endswith(
        (
            "SequenceClassification",
            "ImageClassification",
            "MultipleChoice",
            "NextSentencePrediction",
        )
    ):
        return {"labels": ids(N_BATCH, low=0, high=2)}
    if name.endswith("TokenClassification"):
        return {"labels": ids(N_BATCH, N_WORDS, low=0, high=2)}
    result = {"labels": ids(N_BATCH, N_WORDS)}
    if name.endswith("PreTraining"):
        for key in ("next_sentence_label", "sentence_order_label"):
            if key in labels:
                result[key] = ids(N_BATCH, low=0, high=2)
    return result
