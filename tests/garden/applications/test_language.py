"""Parts of the language applications: sentences of different lengths, packed."""

import torch
from transformers import BertConfig, BertForSequenceClassification

from tremula.frontends.optimum.packing import PackedBertForSequenceClassification, PackedDataset
from tremula.garden.applications.packed_bert.main import FIELDS, attention_of, compared
from tremula.garden.applications.packed_bert.sentences import FIRST, sentences_of


def test_sentences_have_their_own_lengths():
    """Sentences begin with one number, hold known words, and are shorter than the longest row."""
    text = sentences_of(["statistics", "threading"], longest=32, n_vocabulary=100)
    lengths = {len(row["input_ids"]) for row in text.rows}
    assert min(lengths) >= 4
    assert max(lengths) <= 32
    assert len(lengths) > 10
    words = [word for row in text.rows for word in row["input_ids"]]
    assert {row["input_ids"][0] for row in text.rows} == {1}
    assert max(words) < 100
    assert min(words) >= 1
    assert sum(word >= FIRST for word in words) > len(words) / 2
    assert {row["labels"] for row in text.rows} == {0, 1}


def test_packed_words_see_their_own_sentence():
    """The mask of a row is a block for each sentence and nothing for padding."""
    sentences = [{"input_ids": [1] * n, "labels": 0} for n in (3, 2)]
    seen = attention_of(PackedDataset(sentences, 8, 2)[0])
    assert seen.sum() == 3 * 3 + 2 * 2
    assert seen[:3, :3].all()
    assert seen[3:5, 3:5].all()


def test_packed_scores_are_those_of_single_sentences():
    """A sentence gets the scores it has alone; a mask that leaks would be noticed."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, num_labels=3,
        initializer_range=0.5,
    )  # fmt: skip
    bert = BertForSequenceClassification(config).eval()
    sentences = [
        {"input_ids": torch.randint(1, 20, (n,)).tolist(), "labels": n % 3} for n in (5, 4, 6, 3, 7)
    ]
    packed = PackedDataset(sentences, 16, 4)
    model = PackedBertForSequenceClassification(bert)
    share, difference = compared(bert, model, packed)
    assert 0 <= share <= 1
    assert difference < 1e-5
    row = {name: packed[0][name].unsqueeze(0) for name in FIELDS}
    leaky = row | {"attention_mask": (row["attention_mask"] > 0).long()}
    with torch.no_grad():
        apart, together = (model(*(r[name] for name in FIELDS)).logits for r in (row, leaky))
    assert (apart - together).abs().max() > 1e-3
