"""The shell: `svrhmc fit`, `svrhmc predict`, `svrhmc compare`, `svrhmc plan`, `svrhmc reproduce`, `svrhmc warm`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import svrhmc
from svrhmc import theory
from svrhmc.commands.fit import fit_command
from svrhmc.commands.predict import predict_command
from svrhmc.compare import Curve, compare
from svrhmc.core import caching
from svrhmc.core.errors import one_of, requirement
from svrhmc.files import read_table
from svrhmc.plots import look, plot_comparison, plot_complexity, require_matplotlib
from svrhmc.samplers import LABELS, METHODS
from svrhmc.shell import CODES, Shell, require_place, say
from svrhmc.theory.search import TABLED
from svrhmc.warming import KINDS, MODELS, warm

app = typer.Typer(
    name="svrhmc",
    cls=Shell,
    help=f"Fit regressions to tables with a verdict on the numbers; sample, plan and compare samplers.\n\n{CODES}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

_COLUMNS = 8
_DEFAULT_STEP = "0.1"
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


app.command("fit")(fit_command)
app.command("predict")(predict_command)


@app.command("compare")
def compare_command(
    samplers: Annotated[
        str, typer.Option(help="Which samplers, by comma: " + ", ".join(METHODS) + ", or all.")
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
    chosen = list(METHODS) if samplers == "all" else [name.strip().replace("_", "-") for name in samplers.split(",")]
    sizes = _step_sizes(step_size or [_DEFAULT_STEP], chosen)
    target = svrhmc.targets.synthetic(n, dim, seed=seed)
    built = [(LABELS[name], _sampler(name, sizes[name], batch_size, epoch_length)) for name in chosen]
    _check_figure(plot)
    curves = compare(target, built, passes, chains, seed)
    console = Console()
    console.print(_table(curves, passes, f"W₂ to N(x*, S⁻¹), n = {n}, d = {dim}, {chains} chains, seed {seed}"))
    for curve in curves:
        console.print(
            f"{curve.name:>8}: {curve.steps} steps in {curve.seconds:.1f} s, {curve.sampler}", highlight=False
        )
    plot_comparison(curves, f"Synthetic target, n = {n}, d = {dim}, {chains} chains", plot)
    console.print(f"Figure: {escape(str(plot))}", highlight=False, soft_wrap=True)


@app.command("plan")
def plan_command(
    accuracy: Annotated[float, typer.Option(help="ε: the 2-Wasserstein distance to reach.")],
    n: Annotated[int | None, typer.Option(help="Components.")] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension d.")] = None,
    smoothness: Annotated[float | None, typer.Option(help="L of f.")] = None,
    convexity: Annotated[float | None, typer.Option(help="μ of f.")] = None,
    radius: Annotated[
        float | None, typer.Option(help="Bound on the distance from the start to the minimiser; 0 if not set.")
    ] = None,
    gradient_variance: Annotated[
        float | None, typer.Option(help="Mean of |∇fᵢ(x*)|²; SGLD and SG-HMC need it.")
    ] = None,
    component_smoothness: Annotated[float | None, typer.Option(help="L of the components, if larger.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Instead of constants: a .csv whose last column is y, or an .npz with X and y."),
    ] = None,
    model: Annotated[str, typer.Option(help="What --data is for: logistic or linear.")] = "logistic",
    prior_precision: Annotated[float, typer.Option(help="Of the model of --data.")] = 1.0,
    start: Annotated[str, typer.Option(help="Where chains on --data begin: origin or mode.")] = "origin",
    method: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(METHODS)}; with a small linear --data also {' or '.join(TABLED)}.",
        ),
    ] = "svr-hmc",
    rule: Annotated[str, typer.Option(help="exact, corollary or repaired.")] = "exact",
    importance: Annotated[
        bool, typer.Option("--importance", help="Draw rows by importance (rule exact, with --data).")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw cost against n into this file.")] = None,
) -> None:
    """Plan a run from an accuracy, and compare the methods by the paper's Table 1.

    The target is given by its constants, or by a data file, whose posterior
    then has them. Rule exact (the default) uses the exact law on a quadratic
    and says what that assumes; corollary solves the paper's Theorem 1,
    corrected; repaired uses our bound. The table is the paper's with its
    exponent corrected and, for SGLD and SG-HMC, with the term that their steps
    need without any noise, which the paper leaves out.

    [bold]Example[/bold]: svrhmc plan --n 100000 --dim 50 --smoothness 10 --convexity 1 --accuracy 0.1
    """
    if plot is not None:
        _check_figure(plot)
    begin = "mode" if one_of("--start", start, ("origin", "mode")) == "mode" else None
    subject = _subject(
        n, dim, smoothness, convexity, radius, gradient_variance, component_smoothness, data, model, prior_precision
    )
    problem = subject if isinstance(subject, theory.Problem) else theory.Problem.of(subject, begin)
    comparison = theory.compare(problem, accuracy)
    made = theory.plan(subject, accuracy, method, rule, begin, importance)
    if plot is not None:
        plot_complexity(comparison, plot)
    console = Console()
    console.print(escape(str(problem)), highlight=False, soft_wrap=True)
    console.print(_complexity_table(comparison))
    for line in comparison.remarks:
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print()
    console.print(escape(str(made)), highlight=False, soft_wrap=True)
    if plot is not None:
        console.print(f"Figure: {escape(str(plot))}", highlight=False, soft_wrap=True)


@app.command("reproduce")
def reproduce_command(
    part: Annotated[str, typer.Argument(help="figure1, figure2, figure3, table1, table3 or all.")] = "all",
    out: Annotated[Path, typer.Option(help="Where figures, tables and the report go.")] = Path("reproduced"),
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="SVRHMC_DATA",
            help="Folder with the published files, such as a3a/a3a.xz or gisette/gisette.zip; others are downloaded.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version of everything, in minutes.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of figures 2 and 3 and Table 3; 20 if not set.", min=1)
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; as many as there are cores if not set.", min=1)] = None,
) -> None:
    """Run the paper's experiments again: figures, tables and a report.

    Started again after an interrupt, it goes on where it stopped. A data set
    that cannot be had is left out: the rest runs, a line for each in the end
    says why and what to do, and the exit code is 1.

    Files of --data have their published names, plain, .xz, .gz, .bz2 or in the
    publisher's archive, in a folder for each data set: pima/diabetes; a3a/a3a
    and a3a.t; gisette/gisette_train.data, gisette_train.labels,
    gisette_valid.data and gisette_valid.labels (or gisette_scale and
    gisette_scale.t); mushrooms/mushrooms; noise/airfoil_self_noise.dat;
    geographical/default_features_1059_tracks.txt; toms/TomsHardware.data;
    parkinson/parkinsons_updrs.data; casp/CASP.csv. More in docs/data.md.

    [bold]Example[/bold]: svrhmc reproduce figure1 --quick --out quick
    """
    from svrhmc.paper.run import PARTS, reproduce

    one_of("PART", part, (*PARTS, "all"))
    if data is not None and not data.is_dir():
        raise requirement("--data", "a folder", data)
    if out.exists() and not out.is_dir():
        raise requirement("--out", "a folder, or the name of one to be made", out)
    require_matplotlib()
    console = Console()
    chosen = PARTS if part == "all" else (part,)
    try:
        finished = reproduce(
            chosen, out, data, quick, seeds, jobs,
            lambda line: console.print(escape(line), highlight=False, soft_wrap=True),
        )  # fmt: skip
    except KeyboardInterrupt:
        say("Interrupted: the same command goes on from here.")
        raise typer.Exit(130) from None
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise RuntimeError(
            f"a result in {out / 'work'} cannot be used ({type(error).__name__}: {error}); remove that folder, and the "
            "same command begins anew."
        ) from error
    console.print(f"Report: {escape(str(finished.report))}", highlight=False, soft_wrap=True)
    for line in finished.missing:
        say(f"[bold red]missing:[/bold red] {escape(line)}")
    if finished.missing:
        raise typer.Exit(1)


@app.command("warm")
def warm_command(
    model: Annotated[str, typer.Option(help="logistic, linear or all.")] = "all",
) -> None:
    """Compile ahead what runs will need, so that none waits for it.

    Loops of all samplers for logistic and linear models, dense and sparse
    rows, float64 and float32; some minutes on a new machine, a second or two
    for each where it was done before. The code is kept in the package's folder
    where that can be written, or else in SVRHMC_CACHE, $XDG_CACHE_HOME/svrhmc
    or ~/.cache/svrhmc.

    [bold]Example[/bold]: svrhmc warm --model logistic
    """
    one_of("--model", model, (*MODELS, "all"))
    folder = caching.place()
    if folder is None:
        allowed = "a folder that can be written, to keep compiled code in"
        raise requirement("SVRHMC_CACHE", allowed, "none", "what is compiled would be lost with this process")
    console = Console()
    kinds = tuple(kind for kind in KINDS if model in ("all", kind.model))
    seconds = warm(kinds, lambda line: console.print(line, highlight=False, soft_wrap=True))
    console.print(f"Compiled in {seconds:.0f} s, and kept in {escape(str(folder))}", highlight=False, soft_wrap=True)


def _subject(
    n: int | None,
    dim: int | None,
    smoothness: float | None,
    convexity: float | None,
    radius: float | None,
    gradient_variance: float | None,
    component_smoothness: float | None,
    data: Path | None,
    model: str,
    prior_precision: float,
) -> theory.Problem | svrhmc.targets.FiniteSum:
    """The problem that the options name, or the target of the data file."""
    given = {
        "--n": n, "--dim": dim, "--smoothness": smoothness, "--convexity": convexity, "--radius": radius,
        "--gradient-variance": gradient_variance, "--component-smoothness": component_smoothness,
    }  # fmt: skip
    if data is not None:
        beside = [name for name, value in given.items() if value is not None]
        if beside:
            raise requirement("--data", "given without constants", ", ".join(beside), "they follow from the data")
        one_of("--model", model, ("logistic", "linear"))
        build = svrhmc.targets.logistic if model == "logistic" else svrhmc.targets.linear
        X, y = read_table(data)
        return build(X, y, prior_precision=prior_precision)
    absent = [name for name in list(given)[:4] if given[name] is None]
    if n is None or dim is None or smoothness is None or convexity is None:
        raise requirement("--n, --dim, --smoothness and --convexity, or --data,", "given", "no " + ", ".join(absent))
    return theory.Problem(n, dim, smoothness, convexity, radius or 0.0, gradient_variance, component_smoothness)


def _complexity_table(comparison: theory.Comparison) -> Table:
    table = Table(
        title=f"Table 1, corrected: component gradients for W₂ ≤ {comparison.accuracy:g}, leading terms",
        box=SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False,
    )  # fmt: skip
    for name, side in (("method", "left"), ("gradients", "right"), ("formula", "left"), ("", "left")):
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    for row in comparison.rows:
        formula = " + ".join(term.formula for term in row.terms)
        mark = "cheapest" if row.method == comparison.cheapest else ""
        table.add_row(LABELS[row.method], f"{row.total:.3g}", formula, mark)
    return table


def _check_figure(plot: Path) -> None:
    if plot.suffix not in (".png", ".svg", ".pdf"):
        raise requirement("--plot", "a name ending in .png, .svg or .pdf", plot)
    require_place("--plot", plot)
    require_matplotlib()


def _step_sizes(given: list[str], chosen: list[str]) -> dict[str, float]:
    """A step for each chosen sampler: the last plain number, or the one given for it by name."""
    for name in chosen:
        if name not in METHODS:
            raise requirement("--samplers", "among " + ", ".join(METHODS) + ", or all", repr(name))
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
    return METHODS[name](step_size, **settings)


def _table(curves: list[Curve], passes: float, title: str) -> Table:
    """Two rows a sampler, one column for each of some numbers of passes: six samplers fit into 80 columns."""
    caption = f"floor of the chains' rows: {curves[0].floor:.3f}"
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("passes", no_wrap=True)
    table.add_column("", no_wrap=True)
    spent = [passes * k / _COLUMNS for k in range(1, _COLUMNS + 1)]
    for value in spent:
        table.add_column(f"{value:.3g}", justify="right", no_wrap=True)
    for curve in curves:
        places = [curve.at(value) for value in spent]
        sampled = ["–" if place is None else f"{curve.sampled[place]:.3f}" for place in places]
        exact = ["–" if place is None else f"{curve.exact[place]:.3f}" for place in places]
        table.add_row(f"[{look(curve.name)[0]}]{curve.name}[/]", "chains", *sampled)
        table.add_row("", "exact", *exact)
    return table
