"""`host:path` reads a report through the ssh program; what goes wrong is said in words."""

import json
import os
import sys

import pytest

from tremula.commands.reports.remote_reports import RemoteReport, remote_of

# A program that stands for ssh: a noisy login, then the command as a POSIX shell runs it.
FAKE_SSH = """#!/bin/sh
[ "$1" = "--" ] || exit 3
[ "$2" = "nowhere" ] && { echo "ssh: Could not resolve hostname nowhere" >&2; exit 255; }
echo "Welcome to $2"
cd "$FAKE_HOME" && exec env HOME="$FAKE_HOME" /bin/sh -c "$3"
"""


@pytest.fixture
def ssh(tmp_path, files, monkeypatch):
    """Puts the program on the PATH, alone; its computer is the folder of files."""
    if sys.platform == "win32":
        pytest.skip("needs a POSIX shell")
    path = tmp_path / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text(FAKE_SSH)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_HOME", str(files))
    return path


def test_reports_are_read_and_shown(tremula, ssh, tmp_path):
    """A folder, a file and `~/` on a host give what the local report gives, also on the page."""
    local = tremula("report report summary --json").out
    for name in ("box:report", "me@box:report/profile.pop", "box:~/report"):
        done = tremula(["report", name, "summary", "--json"])
        assert done.code == 0, done.err
        ours, theirs = json.loads(local), json.loads(done.out)
        assert theirs["execution"] == ours["execution"]
    page = tmp_path / "page.html"
    assert tremula(["view", "box:report", "--export", str(page)]).code == 0
    assert page.stat().st_size > 100_000
    assert tremula(["compare", "box:report", "report"]).code == 0


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("box:none", ("no file 'none' on 'box'", "ssh box ls")),
        ("box:folder", ("no profile.pop", "ssh box ls folder")),
        ("box:empty", ("0 of 0 bytes", "written completely")),
        ("box:text", ("does not start like one", "")),
        ("nowhere:report", ("cannot reach 'nowhere'", "Could not resolve", "ssh nowhere")),
        ("box:", ("names a host and no path", "profile.pop")),
        ("-oProxyCommand=x:report", ("", "")),
        ("box:$(touch pwned)/`id`'", ("no file", "")),
    ],
)
def test_what_goes_wrong(tremula, ssh, files, name, reasons):
    """Missing files, other files, unknown hosts and odd names: an error, and nothing runs there."""
    done = tremula(["view", name, "--export", "out.html"])
    assert done.code in (1, 2)
    assert all(reason in done.err for reason in reasons)
    assert "Traceback" not in done.err
    assert not (files / "pwned").exists()
    assert not (files / "out.html").exists()


def test_without_ssh(tremula, monkeypatch, tmp_path):
    """Without the program the error names it; --watch says that a copy cannot be watched."""
    monkeypatch.setenv("PATH", str(tmp_path))
    done = tremula("view box:report --export out.html")
    assert done.code == 1
    assert "program ssh" in done.err
    assert "OpenSSH" in done.err
    done = tremula("view box:report --watch")
    assert "--watch" in done.err


def test_what_is_remote(files, monkeypatch):
    """As with scp: a slash before the colon, or a file that exists, is local."""
    monkeypatch.chdir(files)
    (files / "odd:name").write_text("")
    for text in ("report", "./box:report", "/a:b", "odd:name", "a b:c"):
        assert remote_of(text) is None
    assert remote_of("me@box:a/b:c") == RemoteReport("me@box", "a/b:c")
    assert remote_of("[::1]:report") == RemoteReport("::1", "report")
