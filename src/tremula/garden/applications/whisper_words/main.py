"""Lets a small Whisper write from tones, on the device and with transformers alone."""

# `generate` and models that were spread over chips are not what transformers' stubs say.
# pyright: reportCallIssue=false
# pyright: reportArgumentType=false

import copy

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration, logging

from optimum.graphcore.generation import generating
from tremula.garden.application import Findings, Settings, modelled_optimum

N_BINS, N_FRAMES, START, END = 80, 64, 1, 2


def run(settings: Settings) -> Findings:
    logging.set_verbosity_error()
    torch.manual_seed(0)
    width, n_layers, n_written = (32, 1, 8) if settings.tiny else (384, 4, 64)
    plain = WhisperForConditionalGeneration(config_of(width, n_layers)).eval()
    plain.generation_config.eos_token_id = None
    compiled = generating(copy.deepcopy(plain))
    sound, options = tones(), {"max_new_tokens": n_written, "do_sample": False}
    result, expected = (model.generate(sound, **options) for model in (compiled, plain))
    is_same = torch.equal(result, expected)
    settings.show(f"{n_written} words from {N_FRAMES} frames; as transformers writes: {is_same}")
    start = torch.full((1, 1), START, dtype=torch.int32)
    step = {"input_features": sound, "decoder_input_ids": start}
    return Findings(
        results={"words_as_transformers": float(is_same)},
        modelled=modelled_optimum(plain, step, settings, unit="sounds/s"),
        picture=sound[0].numpy(),
    )


def config_of(width: int, n_layers: int) -> WhisperConfig:
    return WhisperConfig(
        vocab_size=128, num_mel_bins=N_BINS, d_model=width, encoder_layers=n_layers,
        decoder_layers=n_layers, encoder_ffn_dim=2 * width, decoder_ffn_dim=2 * width,
        encoder_attention_heads=2, decoder_attention_heads=2, max_source_positions=N_FRAMES // 2,
        max_target_positions=80, pad_token_id=0, bos_token_id=END, eos_token_id=END,
        decoder_start_token_id=START,
    )  # fmt: skip


def tones() -> torch.Tensor:
    """Four tones that rise, in noise: `float32[1, 80, 64]`."""
    sound = 0.1 * torch.randn(1, N_BINS, N_FRAMES)
    for number in range(4):
        sound[0, 10 + 15 * number, 16 * number : 16 * (number + 1)] += 2.0
    return sound
