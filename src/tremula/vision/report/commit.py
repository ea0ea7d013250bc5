"""The Git commit of a folder, read from Git's own files: no program is started."""

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def commit_of(folder: Path) -> str:
    """The commit that is checked out where `folder` is; empty if none can be read."""
    try:
        git = _git_folder(folder.resolve())
        return "" if git is None else _resolved(git, _line(git / "HEAD"))
    except (OSError, UnicodeDecodeError, IndexError):
        return ""


def _git_folder(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            return git
        if git.is_file():  # a worktree or a submodule: "gitdir: PATH"
            return (parent / _line(git).removeprefix("gitdir:").strip()).resolve()
    return None


def _resolved(git: Path, head: str) -> str:
    """The commit of a HEAD: a commit itself, or the branch it names."""
    name = head.removeprefix("ref:").strip()
    if name == head:
        return name if _COMMIT.fullmatch(name) else ""
    common = git / "commondir"  # a worktree has its branches in the main folder
    homes = [git, *([(git / _line(common)).resolve()] if common.is_file() else [])]
    for home in homes:
        if (home / name).is_file():
            commit = _line(home / name)
            return commit if _COMMIT.fullmatch(commit) else ""
    for home in homes:
        packed = home / "packed-refs"
        for line in packed.read_text().splitlines() if packed.is_file() else ():
            commit, _, ref = line.partition(" ")
            if ref == name and _COMMIT.fullmatch(commit):
                return commit
    return ""


def _line(path: Path) -> str:
    return path.read_text().splitlines()[0].strip()
