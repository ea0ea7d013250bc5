"""What the page saves for other tools: the run as a file of Perfetto or Chrome."""

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader
from tremula.vision.trace.trace_files import FORMATS, trace_file

# An export holds these files only if they are small: entries × chips.
MOST_EXPORTED = 20_000


def trace_file_pack(reader: ReportReader, title: str, name: list[str]) -> bytes:
    """The bytes of a file, and what to call it."""
    if len(name) != 1 or name[0] not in FORMATS:
        raise MissingProfileData(
            f"there is no format {'/'.join(name)[:40]!r}.", hint=f"formats are {', '.join(FORMATS)}"
        )
    file = FORMATS[name[0]]
    facts = {"file_name": f"{title}{file.suffix}", "content_type": file.content_type}
    return pack_of(facts, {"content": np.frombuffer(trace_file(reader, file.name), np.uint8)})


def exported_names(reader: ReportReader) -> list[str]:
    """The names of these packs in an export."""
    is_small = 0 < reader.n_entries * reader.n_ipus <= MOST_EXPORTED
    return [f"trace-file/{name}" for name in FORMATS] if is_small else []
