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
from transformers import BartForConditionalGeneration, logging
from transformers.trainer_callback import PrinterCallback

import poptorch
from _speed import print_pod4
from optimum.graphcore import IPUConfig, IPUSeq2SeqTrainer, IPUSeq2SeqTrainingArguments
from tremula.garden.applications.summarisation.task import bart_config, rows_of

N_WORDS, N_SUMMARY = 12, 4

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    poptorch.setLogLevel("ERR")
    logging.set_verbosity_error()
    torch.manual_seed(0)
    config = bart_config(width=64, n_layers=2)
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
            train_dataset=rows_of(2048, 1, N_WORDS, N_SUMMARY),
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    print(f"The loss fell: {losses[-1] < losses[0]}")
    trainer._weights_to_host()
    writer = trainer.model.deparallelize().eval()
    words = torch.stack([row["input_ids"] for row in rows_of(8, 2, N_WORDS, N_SUMMARY)])
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
