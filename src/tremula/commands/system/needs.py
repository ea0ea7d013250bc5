"""What the commands here need that the core does not."""

from importlib.util import find_spec

from tremula.base.errors import PoplarError


def need_system_extra(command: str) -> None:
    """Say what to install if the server's packages are missing."""
    missing = [n for n in ("fastapi", "uvicorn", "prometheus_client") if find_spec(n) is None]
    if missing:
        raise PoplarError(
            f"`{command}` needs {', '.join(missing)}.", hint="pip install 'tremula[system]'"
        )
