"""The settings of the experiments, from settings.toml and nowhere else."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

Settings = dict[str, Any]  # a section of settings.toml
Result = dict[str, Any]  # of a task, as JSON holds it


def load_settings(quick: bool = False, seeds: int | None = None) -> Settings:
    """All sections; --quick and --seeds replace what they replace.

    >>> load_settings()["figure1"]["chains"], load_settings(quick=True)["figure1"]["chains"]
    (20000, 1000)
    """
    settings: Settings = tomllib.loads(files("svrhmc.paper").joinpath("settings.toml").read_text(encoding="utf-8"))
    shorter = settings.pop("quick")
    for section, changes in shorter.items() if quick else ():
        settings[section] |= changes
    shared = settings.pop("regression") | ({} if seeds is None else {"seeds": seeds})
    settings |= {figure: shared | settings[figure] for figure in ("figure2", "figure3")}
    return settings


def panel_name(spread: float, dim: int, n: int, method: str) -> str:
    """What the result of one sampler in one panel of Figure 1 is called."""
    return f"figure1 spread={spread} d={dim} n={n} {method}"
