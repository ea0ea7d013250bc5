"""Sentences of Python's documentation as word numbers, with the module each is from."""

import re
from collections import Counter
from dataclasses import dataclass

from tremula.garden.models.datasets.text import documentation

_SENTENCE = re.compile(r"(?<=[.:!?])\s+")
_WORD = re.compile(r"\w+|[^\w\s]")
FIRST = 3  # number of the commonest word; 0 is padding, 1 begins a sentence, 2 is any rare word


@dataclass(frozen=True)
class Sentences:
    """Rows `{"input_ids": …, "labels": …}` of different lengths, and how many words are known."""

    rows: list[dict]
    n_words: int
    n_labels: int


def sentences_of(names: list[str], longest: int, n_vocabulary: int = 600) -> Sentences:
    """Sentences of 3 to `longest` words, the first of which stands for the whole."""
    result = [
        (words, label)
        for label, texts in enumerate(documentation(names).values())
        for text in texts
        for sentence in _SENTENCE.split(text)
        if 3 <= len(words := _WORD.findall(sentence.lower())) < longest
    ]
    counts = Counter(word for words, _ in result for word in words)
    common = sorted(counts, key=lambda word: (-counts[word], word))[: n_vocabulary - FIRST]
    number_of = {word: FIRST + i for i, word in enumerate(common)}
    rows = [
        {"input_ids": [1, *(number_of.get(word, 2) for word in words)], "labels": label}
        for words, label in result
    ]
    return Sentences(rows, n_vocabulary, len(names))
