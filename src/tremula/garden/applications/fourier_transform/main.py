"""Transforms signals whose spectrum is known, and finds where products should take over."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.fourier_transform.program import transform_engine, transformed


def run(settings: Settings) -> Findings:
    n_signals, length, n_tiles = (64, 256, 64) if settings.tiny else (1472, 1024, 1472)
    random = np.random.default_rng(0)
    noise = random.standard_normal((2, n_signals, length)).astype(np.float32)
    signals = noise[0] + 1j * noise[1]
    expected = np.fft.fft(signals)
    cycles: dict[int, int] = {}
    error, energy = 0.0, 0.0
    best = None
    for direct_below in (16, 32, 64, 128, 256):
        engine = transform_engine(n_signals, length, n_tiles, direct_below).load()
        result = transformed(engine, signals)
        error = max(error, float(np.abs(result - expected).max() / np.abs(expected).max()))
        ratio = (np.abs(result) ** 2).sum() / (length * (np.abs(signals) ** 2).sum())
        energy = max(energy, abs(float(ratio) - 1))
        cycles[direct_below] = engine.report().total_cycles
        settings.show(f"  products below {direct_below}: {cycles[direct_below]:,} cycles")
        if cycles[direct_below] == min(cycles.values()):
            best = engine
    assert best is not None
    tone = float(np.argmax(np.abs(transformed(best, tones(n_signals, length))), axis=1)[3])
    best.load()
    transformed(best, signals)
    modelled = modelled_engine(best, settings, n_items=n_signals, unit="transforms/s")
    return Findings(
        results={
            "relative_error": error,
            "parseval_error": energy,
            "bin_of_tone_3": tone,
            "best_direct_below": float(min(cycles, key=cycles.__getitem__)),
        },
        modelled=modelled,
        curves={"cycles by size of products": [float(c) for c in cycles.values()]},
        picture=np.log(1e-3 + np.abs(np.fft.fftshift(expected[:64], axes=1))),
    )


def tones(n_signals: int, length: int) -> np.ndarray:
    """Signal k is one turning number: its whole spectrum is in bin k."""
    bins, samples = np.arange(n_signals)[:, None], np.arange(length)
    return np.exp(2j * np.pi * bins * samples / length)
