"""The task: the summary of a text is its first words; and a BART that is small enough for it."""

import torch
from transformers import BartConfig

VOCABULARY = 32
PAD, START, END, FIRST = 0, 1, 2, 3


def rows_of(n: int, seed: int, n_words: int, n_summary: int) -> list[dict]:
    """Texts of random words, with summaries that end."""
    draw = torch.Generator().manual_seed(seed)
    result = []
    for _ in range(n):
        words = torch.randint(FIRST, VOCABULARY, (n_words,), generator=draw)
        summary = torch.cat([words[:n_summary], torch.tensor([END])])
        result.append({"input_ids": words, "labels": summary})
    return result


def bart_config(width: int, n_layers: int) -> BartConfig:
    return BartConfig(
        vocab_size=VOCABULARY, d_model=width, encoder_layers=n_layers, decoder_layers=n_layers,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width, max_position_embeddings=32, dropout=0.0, pad_token_id=PAD,
        bos_token_id=START, eos_token_id=END, decoder_start_token_id=START,
        forced_eos_token_id=None,
    )  # fmt: skip
