"""Where compiled code is stored between runs: the one reader of TREMULA_CACHE_DIR."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """The cache folder, which need not exist yet: the first of these that is set.

    `$TREMULA_CACHE_DIR`; `$XDG_CACHE_HOME/tremula`, if it is an absolute path, as the XDG standard
    asks; `~/.cache/tremula`.
    """
    chosen = os.environ.get("TREMULA_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "tremula"
