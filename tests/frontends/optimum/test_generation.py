"""Generation: word for word what transformers generates, with a compiled step."""

import copy

import pytest
import torch
import transformers

import poptorch
from tests.sampling import WIDE
from tremula.base.errors import PoplarError
from tremula.frontends.optimum.generation.mixin import generating
from tremula.frontends.optimum.generation.static_cache import tensors_of, view_of
from tremula.garden.models.tiny_families import tiny_family_model
from tremula.garden.models.tiny_transformers import tiny_config
from tremula.ir.settings import configured

WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 0.9, "top_k": 20},
    "beams": {"num_beams": 3, "do_sample": False},
    "processors": {"do_sample": False, "repetition_penalty": 1.3, "min_new_tokens": 4},
}


def pair(name):
    """A model whose words are not all alike, and the same one with a compiled step."""
    kind = getattr(transformers, name)
    config = tiny_config(kind.config_class)
    config.use_cache = True
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 0
    return model, generating(copy.deepcopy(model))


def _prompts(model):
    ids = torch.randint(3, 60, (3, 7), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    if not model.config.is_encoder_decoder:
        mask[1, :3] = 0  # prompts of different lengths
    return {"input_ids": ids, "attention_mask": mask, "max_new_tokens": 10}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "GPT2LMHeadModel",
        pytest.param("LlamaForCausalLM", marks=WIDE),
        pytest.param("BartForConditionalGeneration", marks=WIDE),
        "T5ForConditionalGeneration",
    ],
)
def test_words_equal_those_of_transformers(name):
    """Greedy, sampled with the same draws, by beams, with processors: the same words."""
    plain, compiled = pair(name)
    prompts = _prompts(plain)
    compiled.on_device_generation_steps = 4
    for way in WAYS.values():
        _same_words(plain, compiled, {**prompts, **way})
    assert len(_searches(compiled)) == len(WAYS)
    assert not compiled._compiled_decoder()._compiled, "no word was searched on the host"


def _same_words(plain, compiled, value):
    """The words are the same, and draws that come later are, too."""
    torch.manual_seed(5)
    expected = plain.generate(**value)
    later = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(compiled.generate(**value), expected), value
    assert torch.equal(torch.rand(1), later), value


def _searches(compiled):
    return compiled._device_search()._compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        {"num_beams": 3, "early_stopping": True},
        {"num_beams": 2, "early_stopping": "never", "length_penalty": 2.0},
        {"num_beams": 3, "length_penalty": -1.0, "num_return_sequences": 3},
        {"do_sample": True, "top_p": 0.8, "min_p": 0.01},
        {"forced_eos_token_id": 2, "suppress_tokens": [5, 6]},
        {"eos_token_id": list(range(2, 30))},
        {"num_beams": 2, "eos_token_id": list(range(2, 30))},
    ],
    ids="-".join,
)
def test_searches_on_the_device_obey_their_arguments(way):
    """Also where sentences end in the middle of a call, and rows at different words."""
    plain, compiled = pair("GPT2LMHeadModel")
    compiled.on_device_generation_steps = 3
    _same_words(plain, compiled, {**_prompts(plain), "do_sample": False, **way})
    assert not compiled._compiled_decoder()._compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        {"no_repeat_ngram_size": 2},
        {"num_beams": 3, "do_sample": True},
        {"max_time": 100.0},
        {"on_device_generation_steps": 0},
    ],
    ids="-".join,
)
def test_what_the_device_cannot_search_the_host_does(way):
    """Steps are compiled then, one for each word, and the words are the same."""
    plain, compiled = pair("GPT2LMHeadModel")
    given = {**_prompts(plain), "do_sample": False, **way}
    compiled.on_device_generation_steps = given.pop("on_device_generation_steps", 4)
    _same_words(plain, compiled, given)
    assert not _searches(compiled)
    assert len(compiled._compiled_decoder()._compiled) == 1


@pytest.mark.slow
def test_prompts_of_similar_lengths_share_a_program():
    """Caches have some room to spare, and lengths are values."""
    plain, compiled = pair("GPT2LMHeadModel")
    for n_words in (4, 9, 6):
        ids = torch.randint(3, 60, (2, n_words), generator=torch.Generator().manual_seed(n_words))
        given = {"input_ids": ids, "max_new_tokens": 5, "num_beams": 2, "do_sample": False}
        _same_words(plain, compiled, given)
    assert len(_searches(compiled)) == 1


@pytest.mark.slow
def test_whisper_transcribes_as_in_transformers():
    """An encoder of sound, a decoder of words."""
    tiny = tiny_family_model("WhisperForConditionalGeneration")
    plain = tiny.model.eval()
    plain.generation_config.eos_token_id, plain.generation_config.pad_token_id = 2, 0
    plain.generation_config.decoder_start_token_id = 1
    sound = {"input_features": tiny.batch["input_features"], "max_new_tokens": 6}
    expected = plain.generate(**sound, do_sample=False)
    result = generating(copy.deepcopy(plain)).generate(**sound, do_sample=False)
    assert torch.equal(result, expected)


@pytest.mark.slow
def test_another_prompt_starts_from_nothing():
    """Keys and values of the last prompt do not linger; uncompiled steps give the same words."""
    plain, compiled = pair("GPT2LMHeadModel")
    for seed in (1, 2):
        ids = torch.randint(3, 60, (2, 5), generator=torch.Generator().manual_seed(seed))
        given = {"input_ids": ids, "max_new_tokens": 6, "do_sample": False}
        expected = plain.generate(**given)
        assert torch.equal(compiled.generate(**given), expected)
        assert torch.equal(compiled.generate(**given, disable_compile=True), expected)


@pytest.mark.slow
def test_steps_of_different_forms_hand_the_words_on():
    """Two words at once, then one: another program, the same cache."""
    plain, compiled = pair("GPT2LMHeadModel")
    config, ids = plain.config, torch.tensor([[5, 9, 11, 4, 7, 3]])
    expected = plain(ids).logits[0, -1]
    cache = transformers.StaticCache(config, max_cache_len=8)
    decoder = compiled._compiled_decoder()
    with torch.no_grad():
        plain(ids[:, :2], past_key_values=cache)
        for first, end in ((2, 3), (3, 5), (5, 6)):
            words = {"input_ids": ids[:, first:end], "past_key_values": cache, "use_cache": True}
            positions = torch.arange(first, end)[None]
            mask = (torch.arange(8) <= positions[0].unsqueeze(1))[None, None]
            given = {"position_ids": positions, "attention_mask": mask}
            result = decoder.step({**words, **given}, reorders=False).logits[0, -1]
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_compiled_prompt_fills_the_cache():
    """What a GPU does: the prompt is a program, too, and steps go on from its keys and values."""
    plain, compiled = pair("GPT2LMHeadModel")
    ids = torch.tensor([[5, 9, 11, 4]])
    cache, reference = (transformers.StaticCache(plain.config, max_cache_len=8) for _ in range(2))
    given = {"input_ids": ids, "position_ids": torch.arange(4)[None], "use_cache": True}
    with torch.no_grad():
        expected = plain(**given, past_key_values=reference)
    result = compiled._compiled_decoder().prompt({**given, "past_key_values": cache})
    torch.testing.assert_close(result.logits[:, -1], expected.logits[:, -1])
    assert int(cache.get_seq_length()) == 4
    for name, tensor in tensors_of(reference).items():
        torch.testing.assert_close(tensors_of(cache)[name], tensor)


@pytest.mark.slow
def test_a_step_runs_on_tiles():
    """The tile program chooses words and writes the cache at places that only it knows."""
    plain, compiled = pair("GPT2LMHeadModel")
    given = {"input_ids": torch.tensor([[5, 9, 11]]), "max_new_tokens": 5, "do_sample": False}
    with configured(tiles="run"):
        result = compiled.generate(**given)
    assert torch.equal(result, plain.generate(**given))
    ((_, executor),) = _searches(compiled).values()
    assert executor.options.device_iterations == 4


def test_caches_of_other_kinds_are_refused():
    """A window that slides over the cache has no fixed places: the error says what to do."""
    cache = transformers.StaticCache(tiny_config(transformers.MistralConfig), max_cache_len=8)
    for layer in cache.layers:
        layer.keys = layer.values = torch.zeros(1, 2, 4, 8)
    with pytest.raises(PoplarError, match="disable_compile=True"):
        view_of(cache, tensors_of(cache), torch.arange(1))


def test_products_of_one_row_hold_weights_by_columns():
    """Such weights are read column by column, and come back to the host as they were."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(6, 4))

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return x @ self.weight

    model = poptorch.inferenceModel(Product())
    x = torch.randn(1, 6)
    with configured(device="cpu"):
        torch.testing.assert_close(model(x), x @ weight)
    (held,) = model.compiled_program().session.state.parameters
    assert held.stride() == (1, 6)
    with torch.no_grad():
        weight.mul_(2)
    model.copyWeightsToDevice()
    torch.testing.assert_close(model(x), x @ weight)
    assert model.compiled_program().session.state.parameters[0].stride() == (1, 6)
