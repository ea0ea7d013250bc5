"""Pipelines: what transformers' give, from a compiled model; and those that it removed."""

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers.models.vit import image_processing_pil_vit as vit_images

from optimum.graphcore import IPUConfig, pipeline
from tremula.base.errors import PoplarError
from tremula.frontends.optimum.pipelines.pipeline import TASKS
from tremula.garden.models.tiny_families import tiny_family_model
from tremula.garden.models.tiny_transformers import tiny_config

SPECIAL = "[PAD] [BOS] [EOS] [UNK] [MASK] [SEP] [CLS]".split()
WORDS = "the cat sat on a mat dog ran far very fast who where is it good bad film".split()


@pytest.fixture(scope="module")
def tokenizer():
    numbers = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    words = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    names = "pad bos eos unk mask sep cls".split()
    special = {f"{name}_token": text for name, text in zip(names, SPECIAL, strict=True)}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=64, **special
    )


def model_of(name, **fields):
    kind = getattr(transformers, name)
    config = tiny_config(kind.config_class)
    for field, value in {"use_cache": True, **fields}.items():
        setattr(config, field, value)
    torch.manual_seed(0)
    return kind(config).eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name", "inputs", "more"),
    [
        ("text-classification", "BertForSequenceClassification", ["the cat sat", "a dog"], {}),
        ("token-classification", "BertForTokenClassification", "the cat sat on", {}),
        ("fill-mask", "BertForMaskedLM", "the [MASK] sat", {}),
        (
            "text-generation",
            "GPT2LMHeadModel",
            "the cat",
            {"max_new_tokens": 5, "do_sample": False},
        ),
    ],
)
def test_results_equal_those_of_transformers(tokenizer, task, name, inputs, more):
    """Rows filled up to a fixed length give the same scores and words."""
    expected = transformers.pipeline(task, model_of(name), tokenizer=tokenizer)(inputs, **more)
    ours = pipeline(task, model_of(name), tokenizer=tokenizer, fp16=False, max_length=16)
    assert _plain(ours(inputs, **more)) == _plain(expected)


def _plain(result):
    if isinstance(result, list):
        return [_plain(item) for item in result]
    if isinstance(result, dict):
        return {key: _plain(value) for key, value in result.items()}
    is_text = isinstance(result, str) or result is None
    return result if is_text else pytest.approx(float(result), abs=1e-5)


@pytest.mark.slow
def test_zero_shot(tokenizer):
    """One row for each label, compared."""
    names = {"entailment": 0, "contradiction": 1}
    labels = {"label2id": names, "id2label": {v: k for k, v in names.items()}}
    model = model_of("BertForSequenceClassification", **labels)
    ours = pipeline(
        "zero-shot-classification", model, tokenizer=tokenizer, fp16=False, max_length=16
    )
    result = ours("the cat sat", candidate_labels=["good", "bad"])
    assert sorted(result["labels"]) == ["bad", "good"]
    assert sum(result["scores"]) == pytest.approx(1)


@pytest.mark.slow
def test_answers_are_spans_of_the_text(tokenizer):
    """The removed question-answering: scores, places and text agree, for one or several."""
    model = model_of("BertForQuestionAnswering")
    ours = pipeline("question-answering", model, tokenizer=tokenizer, fp16=False, max_length=16)
    text = "the cat sat on a mat"
    one = ours(question="who sat", context=text)
    assert text[one["start"] : one["end"]] == one["answer"]
    assert 0 < one["score"] < 1
    three = ours(question="who sat", context=text, top_k=3)
    assert three[0] == one
    assert [a["score"] for a in three] == sorted((a["score"] for a in three), reverse=True)
    assert len(ours(question=["who sat", "where"], context=text)) == 2
    with pytest.raises(ValueError, match="needs question=… and context=…"):
        ours(question="who")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "key"),
    [
        ("summarization", "summary_text"),
        ("translation_en_to_de", "translation_text"),
        ("text2text-generation", "generated_text"),
    ],
)
def test_text_from_text(tokenizer, task, key):
    """The other removed ones generate; words equal the model's own."""
    model = model_of("T5ForConditionalGeneration")
    ours = pipeline(task, model, tokenizer=tokenizer, fp16=False)
    words = tokenizer("the cat sat", return_tensors="pt")["input_ids"]
    expected = model.generate(words, max_new_tokens=5, do_sample=False)
    text = tokenizer.batch_decode(expected, skip_special_tokens=True)[0]
    assert ours("the cat sat", max_new_tokens=5, do_sample=False) == [{key: text}]


@pytest.mark.slow
def test_sound():
    """Sounds are classified in half, the way IPUs computed."""
    import numpy as np

    tiny = tiny_family_model("HubertForSequenceClassification")
    reader = transformers.Wav2Vec2FeatureExtractor(sampling_rate=16_000)
    ours = pipeline("audio-classification", tiny.model, feature_extractor=reader)
    sound = np.random.default_rng(0).normal(size=400).astype(np.float32)
    result = ours({"raw": sound, "sampling_rate": 16_000})
    assert sum(record["score"] for record in result) == pytest.approx(1, abs=1e-2)


def letters(n, special):
    """A vocabulary of n entries: special ones, letters, and names for the rest."""
    plain = [chr(ord("a") + i) for i in range(26)]
    known = [*special, *plain, *(f"<{i}>" for i in range(n))][:n]
    return {text: number for number, text in enumerate(known)}


def noise(n_samples):
    import numpy as np

    return np.random.default_rng(0).normal(size=n_samples).astype(np.float32)


@pytest.mark.slow
def test_speech_letter_by_letter(tmp_path):
    """Wav2Vec2: the letters are those of transformers."""
    model = tiny_family_model("Wav2Vec2ForCTC").model.eval()
    file = tmp_path / "vocab.json"
    special = ["<pad>", "<s>", "</s>", "<unk>", "|"]
    file.write_text(json.dumps(letters(model.config.vocab_size, special)))
    readers = {
        "tokenizer": transformers.Wav2Vec2CTCTokenizer(str(file)),
        "feature_extractor": transformers.Wav2Vec2FeatureExtractor(sampling_rate=16_000),
    }
    _same_speech(model, readers, {"raw": noise(2000), "sampling_rate": 16_000})


@pytest.mark.slow
def test_speech_written_down():
    """Whisper: the words are generated, on the device."""
    tiny = tiny_family_model("WhisperForConditionalGeneration")
    model, config = tiny.model.eval(), tiny.model.generation_config
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    config.eos_token_id, config.pad_token_id, config.decoder_start_token_id = 2, 0, 1
    config.use_cache = model.config.use_cache = True
    n_words = model.config.vocab_size
    known = letters(n_words - 1, ["<pad>", "<s>", "</s>", "<unk>"])
    known["<|notimestamps|>"] = n_words - 1
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    n_frames = tiny.batch["input_features"].shape[-1]
    readers = {
        "tokenizer": transformers.WhisperTokenizer(vocab=known, merges=[], **names),
        "feature_extractor": transformers.WhisperFeatureExtractor(
            feature_size=model.config.num_mel_bins, chunk_length=1, hop_length=16_000 // n_frames
        ),
    }
    sound = {"raw": noise(16_000), "sampling_rate": 16_000}
    _same_speech(model, readers, sound, generate_kwargs={"max_new_tokens": 6})


def _same_speech(model, readers, sound, **more):
    task = "automatic-speech-recognition"
    expected = transformers.pipeline(task, model, **readers)(dict(sound), **more)
    assert len(expected["text"]) > 2
    assert pipeline(task, model, fp16=False, **readers)(dict(sound), **more) == expected


@pytest.mark.slow
def test_images():
    """Pictures are classified as in transformers."""
    image_files = pytest.importorskip("PIL.Image")
    import numpy as np

    model = tiny_family_model("ViTForImageClassification").model.eval()
    size = {"height": model.config.image_size, "width": model.config.image_size}
    reader = vit_images.ViTImageProcessorPil(size=size)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 30, 3), dtype=np.uint8)
    image, task = image_files.fromarray(pixels), "image-classification"
    expected = transformers.pipeline(task, model, image_processor=reader)(image)
    ours = pipeline(task, model, image_processor=reader, fp16=False)
    assert _plain(ours(image)) == _plain(expected)


def test_wrong_tasks_are_named():
    """The nearest task is suggested; every task has a published configuration."""
    with pytest.raises(PoplarError, match="text-classification"):
        pipeline("text-clasification")
    for task in TASKS.values():
        assert IPUConfig.from_pretrained(f"Graphcore/{task.default_ipu_config}-ipu")
