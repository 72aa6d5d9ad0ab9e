"""`svrhmc` and `python -m svrhmc`."""

from __future__ import annotations

import sys

from svrhmc.core.errors import missing


def main() -> None:
    """Start the shell, or say what it needs."""
    try:
        from svrhmc.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"error: {missing('Typer and Rich', 'cli', 'the svrhmc command')}")
    app()


if __name__ == "__main__":
    main()
