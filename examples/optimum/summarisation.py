"""BART learns to copy the first words of a text, then generates with a compiled step.

    python summarisation.py [--steps N]

A "summary" here is the first four words: a task a tiny model with random weights can learn. Beams
and sampling go through the same compiled step; words are those that transformers would generate.
"""

# Arguments when run as a test: --steps 40

import argparse
import tempfile
import time

import torch
from transformers import BartConfig, BartForConditionalGeneration, logging
from transformers.trainer_callback import PrinterCallback

import poptorch
from _speed import print_pod4
from optimum.graphcore import IPUConfig, IPUSeq2SeqTrainer, IPUSeq2SeqTrainingArguments

N_WORDS, N_SUMMARY, VOCABULARY = 12, 4, 32
PAD, START, END, FIRST = 0, 1, 2, 3


def rows(n, seed):
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(n):
        words = torch.randint(FIRST, VOCABULARY, (N_WORDS,), generator=draw)
        summary = torch.cat([words[:N_SUMMARY], torch.tensor([END])])
        found.append({"input_ids": words, "labels": summary})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    poptorch.setLogLevel("ERR")
    logging.set_verbosity_error()
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=VOCABULARY, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, max_position_embeddings=32, dropout=0.0, pad_token_id=PAD,
        bos_token_id=START, eos_token_id=END, decoder_start_token_id=START,
        forced_eos_token_id=None,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = IPUSeq2SeqTrainer(
            model,
            IPUConfig(),
            IPUSeq2SeqTrainingArguments(
                folder, fp32=True, max_steps=args.steps, learning_rate=3e-3, report_to=[],
                per_device_train_batch_size=32, save_strategy="no", logging_steps=20,
                disable_tqdm=True,
            ),
            train_dataset=rows(2048, seed=1),
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    print(f"The loss fell: {losses[-1] < losses[0]}")
    trainer._weights_to_host()
    writer = trainer.model.deparallelize().eval()
    words = torch.stack([row["input_ids"] for row in rows(8, seed=2)])
    writer.generate(words, max_new_tokens=N_SUMMARY + 1)  # compiles
    began = time.perf_counter()
    greedy = writer.generate(words, max_new_tokens=N_SUMMARY + 1, do_sample=False)
    seconds = time.perf_counter() - began
    beams = writer.generate(words, max_new_tokens=N_SUMMARY + 1, num_beams=3)
    right = (greedy[:, 1 : 1 + N_SUMMARY] == words[:, :N_SUMMARY]).float().mean()
    print(f"Words right, greedy: {right:.0%}; by beams of three: {beams.shape[0]} summaries")
    print(f"Here: {greedy[:, 1:].numel() / seconds:,.0f} words per second")
    batch = {"input_ids": words[:1].int(), "decoder_input_ids": words[:1, :1].int()}
    print_pod4(BartForConditionalGeneration(config), batch, "texts")
