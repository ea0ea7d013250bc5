"""Whisper, in the shape of whisper-tiny, writes words from sound with a compiled step.

    python whisper_tiny.py [--words N] [--tiny]

Random weights write nonsense, but the same nonsense as transformers': word for word.
"""

# Arguments when run as a test: --words 6 --tiny

import argparse
import copy
import time

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration, logging

import poptorch
from _speed import print_pod4
from optimum.graphcore.generation import generating

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=32)
    parser.add_argument("--tiny", action="store_true", help="two layers of 32 instead of 4 of 384")
    args = parser.parse_args()
    poptorch.setLogLevel("ERR")
    logging.set_verbosity_error()
    torch.manual_seed(0)
    sizes = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "ffn": 1536, "heads": 6}
    if args.tiny:
        sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "ffn": 64, "heads": 2}
    config = WhisperConfig(
        vocab_size=512, num_mel_bins=80, d_model=sizes["d_model"],
        encoder_layers=sizes["encoder_layers"], decoder_layers=sizes["decoder_layers"],
        encoder_ffn_dim=sizes["ffn"], decoder_ffn_dim=sizes["ffn"],
        encoder_attention_heads=sizes["heads"], decoder_attention_heads=sizes["heads"],
        max_source_positions=100, max_target_positions=64, pad_token_id=0, bos_token_id=2,
        eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    plain = WhisperForConditionalGeneration(config).eval()
    plain.generation_config.eos_token_id = None
    sound = torch.randn(1, 80, 200)  # two seconds as a spectrogram
    compiled = generating(copy.deepcopy(plain))
    given = {"max_new_tokens": args.words, "do_sample": False}
    found = compiled.generate(sound, **given)  # compiles
    began = time.perf_counter()
    compiled.generate(sound, **given)
    seconds = time.perf_counter() - began
    print(f"The same words as transformers: {torch.equal(found, plain.generate(sound, **given))}")
    print(f"Here: {args.words / seconds:,.0f} words per second")
    step = {"input_features": sound, "decoder_input_ids": torch.tensor([[1]], dtype=torch.int32)}
    print_pod4(plain, step, "sounds")
