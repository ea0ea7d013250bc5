"""Text for language models, from the documentation in Python's own library; no download."""

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

# Modules of the standard library whose documentation is read.
MODULES = """
    argparse collections configparser csv datetime decimal difflib fractions functools heapq
    itertools json logging pathlib random re shutil statistics string subprocess tempfile textwrap
    threading unittest urllib.parse zipfile
""".split()
_WORD = re.compile(r"\w+|[^\w\s]")
UNKNOWN, PADDING = "<unknown>", "<padding>"


def python_text() -> str:
    """The docstrings of the standard library's modules, some 250,000 characters."""
    return "\n\n".join(text for texts in documentation().values() for text in texts)


def documentation(names: Sequence[str] = MODULES) -> dict[str, list[str]]:
    """The docstrings of modules: of each module, its functions, its classes and their methods."""
    return {name: _docstrings(importlib.import_module(name)) for name in names}


def _docstrings(module: object) -> list[str]:
    result, seen = [inspect.getdoc(module) or ""], set()
    for _, member in sorted(vars(module).items()):
        if getattr(member, "__module__", None) != getattr(module, "__name__", ""):
            continue
        members = [member, *(vars(member).values() if isinstance(member, type) else ())]
        for each in members:
            text = inspect.getdoc(each) if callable(each) else None
            if text and text not in seen:
                seen.add(text)
                result.append(text)
    return [text for text in result if text]


def characters(n_length: int, text: str | None = None) -> tuple[Tensor, str]:
    """Text as rows of character ids `int64[n, n_length]`, and the characters by id."""
    text = python_text() if text is None else text
    alphabet = "".join(sorted(set(text)))
    number_of = {character: number for number, character in enumerate(alphabet)}
    n_rows = len(text) // n_length
    numbers = torch.tensor([number_of[character] for character in text[: n_rows * n_length]])
    return numbers.view(n_rows, n_length), alphabet


class Excerpts(torch.utils.data.Dataset):
    """Which module is it from? Word ids of excerpts `int64[n_length]`, and module ids.

    The `n_vocabulary` most frequent words have separate ids, all others share one.
    """

    def __init__(self, names: Sequence[str], n_length: int = 64, n_vocabulary: int = 2000):
        self.names = names
        words = {
            name: _WORD.findall(" ".join(texts).lower())
            for name, texts in documentation(names).items()
        }
        counts = Counter(word for own in words.values() for word in own)
        common = sorted(counts, key=lambda word: (-counts[word], word))
        self.vocabulary = [PADDING, UNKNOWN, *common[: n_vocabulary - 2]]
        number_of = {word: number for number, word in enumerate(self.vocabulary)}
        rows, labels = [], []
        for label, name in enumerate(names):
            numbers = [number_of.get(word, 1) for word in words[name]]
            own = [
                numbers[i : i + n_length] for i in range(0, len(numbers) - n_length + 1, n_length)
            ]
            rows += own
            labels += [label] * len(own)
        self.ids: Tensor = torch.tensor(rows)
        self.labels: Tensor = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.ids[index], self.labels[index]
