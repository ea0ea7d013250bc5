"""An LSTM in Keras that learns to continue text, letter by letter, from Python's documentation.

python lstm_text.py [--letters N] [--epochs N]
"""

# Run by the wide tests.
# Arguments when run as a test: --letters 1280 --epochs 1

import argparse

import numpy as np

from tremula.garden.models.datasets.text import python_text
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers  # isort: skip

LENGTH, BATCH, N_STEPS = 16, 16, 4
BEGINNING = "return the "


def windows(text: str, known: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of letters, by number, and the letters that follow them."""
    numbers = np.array([known.index(letter) for letter in text], np.int32)
    n = (len(numbers) - 1) // LENGTH // (BATCH * N_STEPS) * BATCH * N_STEPS
    size = n * LENGTH
    return numbers[:size].reshape(n, LENGTH), numbers[1 : size + 1].reshape(n, LENGTH)


def network(n_letters: int) -> keras.Model:
    """Numbers in; for every place, a score of each letter that may follow."""
    return keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            layers.Embedding(n_letters, 16),
            layers.LSTM(64, return_sequences=True),
            layers.Dense(n_letters),
        ]
    )


def continued(model: keras.Model, known: str, n_more: int) -> str:
    """Text that begins as told, each letter the likeliest one."""
    text = BEGINNING
    for _ in range(n_more):
        row = [known.index(letter) for letter in text[-LENGTH:].rjust(LENGTH)]
        scores = model.predict(np.array([row] * BATCH, np.int32), batch_size=BATCH, verbose=0)
        text += known[int(scores[0, -1].argmax())]
    return text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--letters", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    text = " ".join(python_text().split())[: args.letters].lower()
    known = "".join(sorted(set(text + BEGINNING)))
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = network(len(known))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.RMSprop(0.01), loss, steps_per_execution=N_STEPS)
        result = model.fit(*windows(text, known), batch_size=BATCH, epochs=args.epochs, verbose=0)
        print(f"{len(text)} letters, loss {result.history['loss'][-1]:.2f}")
        model.compile(loss=loss)  # predictions come one by one
        print("continued:", continued(model, known, 8))


if __name__ == "__main__":
    main()
