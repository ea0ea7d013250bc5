"""Paths added to variables of the environment, as programs with C++ vertices do."""

import os


def env_append_path(envname: str, path: str) -> None:
    """Add a path to a list of paths."""
    paths = [one for one in os.environ.get(envname, "").split(os.pathsep) if one]
    os.environ[envname] = os.pathsep.join([*paths, path] if path not in paths else paths)


def env_path_append(path: str) -> None:
    """Add a path to where commands are looked for."""
    env_append_path("PATH", path)


def env_cpath_append(path: str) -> None:
    """Add a path to where compilers look for headers."""
    env_append_path("CPATH", path)
