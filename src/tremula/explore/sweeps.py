"""A sweep: all points of a space, stored one by one, and those that no other one beats."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tremula.base.storage.cache_dir import cache_dir
from tremula.base.storage.strict_json import JsonObject
from tremula.explore.cluster import results_on_cluster
from tremula.explore.picture import front_svg, page
from tremula.explore.points import chip_of, run_point
from tremula.explore.space import CHIP_ALIASES, Job, Space
from tremula.explore.store import ResultStore, key_of
from tremula.explore.trial import TrialOutcome
from tremula.explore.workers import results_of
from tremula.hardware import die_area
from tremula.vision.analysis.text_views import table

Progress = Callable[[float], None]
AIMS = ("ms/sample", "bytes/tile", "mJ/sample")  # less is better in all
RATES = ("samples/s/mm2", "samples/s/W")  # more is better; see hardware/die_area.py


@dataclass(frozen=True)
class SweepPoint:
    """One point of a space and what it takes."""

    job: Job
    outcome: TrialOutcome

    @property
    def label(self) -> str:
        """What distinguishes it, in short names."""
        short = {long: name for name, long in CHIP_ALIASES.items()}
        parts = {**self.job["chip"], **self.job["options"]}
        said = [f"{short.get(k, k)}={_shown(v)}" for k, v in parts.items()]
        return " ".join([self.job["model"], *said])

    @property
    def aims(self) -> tuple[float, float, float]:
        """Milliseconds and millijoules of a sample, bytes on the fullest tile."""
        out = self.outcome
        time_ms = 1e3 * out.seconds / max(1, out.n_samples)
        return time_ms, float(max(out.n_bytes, default=0)), 1e3 * out.joules_per_sample

    @property
    def area_mm2(self) -> float:
        """Of all chips that the point uses."""
        return die_area(chip_of(self.job)).total * self.outcome.candidate.n_chips

    @property
    def per_mm2(self) -> float:
        """Samples a second and square millimetre."""
        out = self.outcome
        return out.n_samples / out.seconds / self.area_mm2 if out.seconds else 0.0

    @property
    def per_watt(self) -> float:
        """Samples a second and watt, which are samples a joule."""
        energy = self.outcome.joules_per_sample
        return 1 / energy if energy else 0.0


@dataclass(frozen=True)
class Swept:
    """All points in the order of the space, and which of them are on the front of their model."""

    name: str
    points: tuple[SweepPoint, ...]
    is_front: tuple[bool, ...]


def sweep(
    space: Space,
    *,
    folder: str | Path | None = None,
    n_workers: int | None = None,
    address: str | None = None,
    progress: Progress = lambda _: None,
) -> Swept:
    """Compute what is not known yet, here or on a Dask cluster at `address`."""
    store, jobs = ResultStore(folder or cache_dir() / "sweeps"), space.jobs
    keys = [_key(job) for job in jobs]
    results = {key: stored for key in keys if (stored := store.find(key)) is not None}
    missing = [number for number, key in enumerate(keys) if key not in results]
    progress(len(results) / max(1, len(jobs)))
    for number, result in _results(jobs, missing, n_workers, address):
        store.keep(keys[number], result)
        results[keys[number]] = result
        progress(len(results) / len(jobs))
    points = tuple(
        SweepPoint(job, TrialOutcome.from_dict(results[key]))
        for job, key in zip(jobs, keys, strict=True)
    )
    return Swept(space.name, points, fronts_of(points))


def _results(
    jobs: Sequence[Job], missing: Sequence[int], n_workers: int | None, address: str | None
) -> Iterator[tuple[int, JsonObject]]:
    numbered = [(number, jobs[number]) for number in missing]
    if address is None:
        results = results_of(_run_numbered, numbered, n_workers)
    else:
        results = results_on_cluster(address, _run_numbered, numbered)
    for (number, _), result in results:
        yield number, result


def _run_numbered(numbered: tuple[int, Job]) -> JsonObject:
    return run_point(numbered[1])


def _key(job: Job) -> str:
    """The job, and the text of its script."""
    script = Path(job["script"])
    text = script.read_bytes() if script.exists() else b""
    return key_of(job, hashlib.sha256(text).hexdigest())


def fronts_of(points: Sequence[SweepPoint]) -> tuple[bool, ...]:
    """Whether no point of the same model that fits is as good in all aims and better in one."""
    is_front = np.zeros(len(points), bool)
    for model in {point.job["model"] for point in points}:
        rows = [i for i, p in enumerate(points) if p.job["model"] == model and p.outcome.fits]
        is_front[rows] = pareto(np.array([points[i].aims for i in rows]).reshape(-1, len(AIMS)))
    return tuple(is_front.tolist())


def pareto(aims: np.ndarray) -> np.ndarray:
    """bool[n]: rows [n, aims] that no other row beats; less is better, equal rows all stay."""
    no_worse = (aims[:, None] <= aims[None]).all(axis=2)
    better = (aims[:, None] < aims[None]).any(axis=2)
    return np.logical_not((no_worse & better).any(axis=0))


def swept_table(swept: Swept) -> str:
    """All points, those of the fronts marked, fastest first."""
    rows = []
    for point, is_front in sorted(
        zip(swept.points, swept.is_front, strict=True),
        key=lambda pair: (not pair[0].outcome.fits, pair[0].aims),
    ):
        if point.outcome.error:
            rows.append((point.label, *"-----", point.outcome.error[:60]))
            continue
        time_ms, n_bytes, energy = point.aims
        verdict = "front" if is_front else "fits" if point.outcome.fits else "too large"
        figures = (f"{time_ms:.4g}", f"{n_bytes:,.0f}", f"{energy:.4g}")
        rates = (f"{point.per_mm2:.4g}", f"{point.per_watt:.4g}")
        rows.append((point.label, *figures, *rates, verdict))
    return table(("point", *AIMS, *RATES, ""), rows)


def swept_page(swept: Swept) -> str:
    """A page with the fronts of time and memory, and of time and energy."""
    drawn = [
        (point, is_front)
        for point, is_front in zip(swept.points, swept.is_front, strict=True)
        if not point.outcome.error
    ]
    svgs = [
        front_svg([(p.aims[0], p.aims[aim], f, p.label) for p, f in drawn], AIMS[0], AIMS[aim])
        for aim in (1, 2)
    ]
    return page(swept.name, svgs, swept_table(swept))


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
