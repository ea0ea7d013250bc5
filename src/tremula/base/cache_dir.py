"""Where compiled code is kept between runs: the one reader of TREMULA_CACHE_DIR."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """The cache folder: $TREMULA_CACHE_DIR, or `~/.cache/tremula`. It need not exist yet."""
    chosen = os.environ.get("TREMULA_CACHE_DIR")
    return Path(chosen) if chosen else Path.home() / ".cache" / "tremula"
