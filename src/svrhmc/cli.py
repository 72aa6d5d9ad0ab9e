"""The shell: `svrhmc compare`."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import svrhmc
from svrhmc.compare import Curve, compare
from svrhmc.errors import requirement
from svrhmc.plots import COLOURS, plot_comparison, require_matplotlib

app = typer.Typer(
    name="svrhmc",
    help="Sample from densities given by finite sums, and see how well samplers do it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

_COLUMNS = 8
_DEFAULT_STEP = "0.1"
NAMES = {"lmc": "LMC", "sgld": "SGLD", "vr-sgld": "VR-SGLD", "hmc": "HMC", "sg-hmc": "SG-HMC", "svr-hmc": "SVR-HMC"}
_STOCHASTIC = {"sgld", "sg-hmc", "vr-sgld", "svr-hmc"}
_SNAPSHOTS = {"vr-sgld", "svr-hmc"}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"svrhmc {svrhmc.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    pass


@app.command("compare")
def compare_command(
    samplers: Annotated[
        str, typer.Option(help="Which samplers, by comma: " + ", ".join(NAMES) + ", or all.")
    ] = "hmc,sg-hmc,svr-hmc",
    n: Annotated[int, typer.Option(help="Components of the target.", min=1)] = 100,
    dim: Annotated[int, typer.Option(help="Dimension of the target.", min=1)] = 10,
    chains: Annotated[int, typer.Option(help="Independent chains of each sampler.", min=2)] = 2000,
    passes: Annotated[float, typer.Option(help="Data passes each sampler may spend, snapshots included.")] = 20.0,
    step_size: Annotated[
        list[str] | None,
        typer.Option(help="A number for all samplers, or NAME=NUMBER for one; may be repeated. [default: 0.1]"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of a minibatch.", min=1)] = 1,
    epoch_length: Annotated[
        int | None, typer.Option(help="Steps between snapshots; n // batch-size if not set.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the target and every draw.", min=0)] = 0,
    plot: Annotated[Path, typer.Option(help="Where the figure goes (.png, .svg or .pdf).")] = Path("compare.png"),
) -> None:
    """Compare samplers on the paper's synthetic target: 2-Wasserstein distance against data passes.

    The target is a Gaussian: n quadratic components with centres from
    N(2, 4I) and a common matrix with eigenvalues from 2/3 to 3/2. Chains
    start at 0. Beside each distance estimated from the chains stands the one
    that belongs to the exact mean and covariance of the sampler at that step.
    The floor is what the chains' estimate would be, in the root mean square,
    for exact draws from the target.

    [bold]Example[/bold]: svrhmc compare --samplers sg-hmc,svr-hmc --n 1000 --passes 5 --step-size sg-hmc=0.05
    """
    chosen = list(NAMES) if samplers == "all" else [name.strip().replace("_", "-") for name in samplers.split(",")]
    try:
        sizes = _step_sizes(step_size or [_DEFAULT_STEP], chosen)
        target = svrhmc.targets.synthetic(n, dim, seed=seed)
        built = [(NAMES[name], _sampler(name, sizes[name], batch_size, epoch_length)) for name in chosen]
        if plot.suffix not in (".png", ".svg", ".pdf"):
            raise requirement("--plot", "a name ending in .png, .svg or .pdf", plot)
        if not os.access(plot.resolve().parent, os.W_OK):
            raise requirement("--plot", "in a folder that exists and can be written", plot)
        require_matplotlib()
        curves = compare(target, built, passes, chains, seed)
    except (ValueError, ModuleNotFoundError, svrhmc.DivergenceError) as error:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    console = Console()
    console.print(_table(curves, passes, f"W₂ to N(x*, S⁻¹), n = {n}, d = {dim}, {chains} chains, seed {seed}"))
    for curve in curves:
        console.print(
            f"{curve.name:>8}: {curve.steps} steps in {curve.seconds:.1f} s, {curve.sampler}", highlight=False
        )
    plot_comparison(curves, f"Synthetic target, n = {n}, d = {dim}, {chains} chains", plot)
    console.print(f"Figure: {escape(str(plot))}", highlight=False, soft_wrap=True)


def _step_sizes(given: list[str], chosen: list[str]) -> dict[str, float]:
    """A step for each chosen sampler: the last plain number, or the one given for it by name."""
    for name in chosen:
        if name not in NAMES:
            raise requirement("--samplers", "among " + ", ".join(NAMES) + ", or all", repr(name))
    sizes = dict.fromkeys(chosen, float(_DEFAULT_STEP))
    for text in sorted(given, key=lambda text: "=" in text):
        name, _, number = text.rpartition("=")
        name = name.replace("_", "-")
        if name and name not in chosen:
            raise requirement("--step-size", "a number or NAME=NUMBER with NAME among the samplers", repr(text))
        try:
            size = float(number)
        except ValueError:
            size = math.nan
        if not size > 0:
            raise requirement("--step-size", "a positive number or NAME=NUMBER", repr(text))
        sizes.update({name: size} if name else dict.fromkeys(chosen, size))
    return sizes


def _sampler(name: str, step_size: float, batch_size: int, epoch_length: int | None) -> svrhmc.Sampler:
    settings: dict[str, int | None] = {}
    if name in _STOCHASTIC:
        settings["batch_size"] = batch_size
    if name in _SNAPSHOTS:
        settings["epoch_length"] = epoch_length
    sampler: svrhmc.Sampler = getattr(svrhmc, name.replace("-", "_"))(step_size, **settings)
    return sampler


def _table(curves: list[Curve], passes: float, title: str) -> Table:
    """Two rows a sampler, one column for each of some numbers of passes: six samplers fit into 80 columns."""
    caption = f"floor of the chains' rows: {curves[0].floor:.3f}"
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("passes", no_wrap=True)
    table.add_column("", no_wrap=True)
    spent = [passes * k / _COLUMNS for k in range(1, _COLUMNS + 1)]
    for value in spent:
        table.add_column(f"{value:.3g}", justify="right", no_wrap=True)
    for curve, colour in zip(curves, COLOURS, strict=False):
        places = [curve.at(value) for value in spent]
        sampled = ["–" if place is None else f"{curve.sampled[place]:.3f}" for place in places]
        exact = ["–" if place is None else f"{curve.exact[place]:.3f}" for place in places]
        table.add_row(f"[{colour}]{curve.name}[/]", "chains", *sampled)
        table.add_row("", "exact", *exact)
    return table
