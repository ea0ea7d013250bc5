"""The kind of case: a format and the changes of its good file."""

import atexit
import contextlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from random import Random

from tools.fuzz.case import Case, IllegalCase, plain
from tools.fuzz.files.formats import FORMATS, good_file
from tools.fuzz.files.mutations import mutated, mutations


class MutatedFiles:
    """Files that are damaged, foreign or hostile: read, or rejected with an error of ours."""

    name = "files"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)

    def generate(self, random: Random) -> Case:
        name = random.choice(list(FORMATS))
        return plain({"format": name, "mutations": mutations(random, FORMATS[name].is_text)})

    def features(self, case: Case) -> Iterable[str]:
        return {f"format:{case['format']}", *(f"mutation:{m[0]}" for m in case["mutations"])}

    def check(self, case: Case) -> None:
        if case["format"] not in FORMATS or not all(case["mutations"]):
            raise IllegalCase("a format, and mutations")
        format = FORMATS[case["format"]]
        try:
            content = mutated(good_file(case["format"]), case["mutations"])
        except (TypeError, ValueError, IndexError, KeyError) as why:
            raise IllegalCase(repr(why)) from None
        path = Path(self._folder, f"case{format.suffix}")
        path.write_bytes(content)
        if format.seal is not None:
            format.seal(path)
        quiet = contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings()
        with quiet[0], quiet[1], contextlib.suppress(*format.errors):
            warnings.simplefilter("ignore")
            format.read(path)
