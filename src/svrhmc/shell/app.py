"""The shell: `svrhmc fit`, `svrhmc predict`, `svrhmc compare`, `svrhmc compare-samplers`, `svrhmc plan`,
`svrhmc reproduce`, `svrhmc warm`.
"""

from __future__ import annotations

import math
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import svrhmc
from svrhmc import theory
from svrhmc.core import code_cache, processes
from svrhmc.core.errors import one_of, requirement
from svrhmc.plots import look, plot_comparison, plot_complexity, require_matplotlib
from svrhmc.results.comparison import compare
from svrhmc.sampler_comparison import Curve, compare_samplers
from svrhmc.samplers import LABELS, METHODS
from svrhmc.shell.errors import CODES, Shell, interrupted, require_folder, require_place, say, show, writing
from svrhmc.shell.fit import fit_command
from svrhmc.shell.outputs import loo_in
from svrhmc.shell.predict import predict_command
from svrhmc.shell.warming import KINDS, MODELS, warm
from svrhmc.tables.numbers import read_table
from svrhmc.theory.planning import TABLED

app = typer.Typer(
    name="svrhmc",
    cls=Shell,
    help=f"Fit regressions to tables with a verdict on the numbers, and compare fits; plan and compare samplers.\n\n"
    f"{CODES}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

_DEPRECATED = "svrhmc compare A B compares fits. To compare samplers, write svrhmc compare-samplers."
_COLUMNS = 8
_DEFAULT_STEP = "0.1"
_FORMER, _FORMER_COUNT = typer.Option(hidden=True), typer.Option(hidden=True, min=1)  # of compare-samplers


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"svrhmc {svrhmc.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command("fit")(fit_command)
app.command("predict")(predict_command)


@app.command("compare")
def compare_command(
    fits: Annotated[
        list[Path] | None, typer.Argument(help="The folders of two fits or more, of the same rows.", show_default=False)
    ] = None,
    samplers: Annotated[str | None, _FORMER] = None,
    n: Annotated[int | None, _FORMER_COUNT] = None,
    dim: Annotated[int | None, _FORMER_COUNT] = None,
    chains: Annotated[int | None, typer.Option(hidden=True, min=2)] = None,
    passes: Annotated[float | None, _FORMER] = None,
    step_size: Annotated[list[str] | None, _FORMER] = None,
    batch_size: Annotated[int | None, _FORMER_COUNT] = None,
    epoch_length: Annotated[int | None, _FORMER] = None,
    seed: Annotated[int | None, typer.Option(hidden=True, min=0)] = None,
    plot: Annotated[Path | None, _FORMER] = None,
) -> None:
    """Compare fits of the same rows by how well they predict rows that they have not seen.

    A line for each fit, the best first: the expected log predictive density
    (elpd) by leave-one-out cross-validation, how far it is below the best with
    the standard error of that difference, the effective number of parameters
    (p_loo), the weight in the mixture of the fits that would predict best, and
    for how many rows all this is not reliable (bad_k). Sentences say what to
    think of it. svrhmc fit has written what is needed to the folders.

    [bold]Example[/bold]: svrhmc compare churn-fit churn-by-region-fit
    """
    former: dict[str, Any] = {
        "samplers": samplers, "n": n, "dim": dim, "chains": chains, "passes": passes, "step_size": step_size or None,
        "batch_size": batch_size, "epoch_length": epoch_length, "seed": seed, "plot": plot,
    }  # fmt: skip
    given = {name: value for name, value in former.items() if value is not None}
    if fits and given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise requirement("svrhmc compare", "given folders of fits alone", options, "these are of compare-samplers")
    if fits:
        named = {str(place): loo_in(place) for place in fits}
        if len(named) < len(fits):
            raise requirement("the fits", "different folders", ", ".join(map(str, fits)))
        show(str(compare(named)))
    else:
        say(f"[yellow]deprecated:[/yellow] {_DEPRECATED}")
        compare_samplers_command(**given)


@app.command("compare-samplers")
def compare_samplers_command(
    samplers: Annotated[
        str, typer.Option(help="Samplers to compare, separated by commas: " + ", ".join(METHODS) + "; or all.")
    ] = "hmc,sg-hmc,svr-hmc",
    n: Annotated[int, typer.Option(help="Number of components of the target.", min=1)] = 100,
    dim: Annotated[int, typer.Option(help="Dimension of the target.", min=1)] = 10,
    chains: Annotated[int, typer.Option(help="Number of independent chains of each sampler.", min=2)] = 2000,
    passes: Annotated[
        float, typer.Option(help="Passes over the data that each sampler may make, snapshots included.")
    ] = 20.0,
    step_size: Annotated[
        list[str] | None,
        typer.Option(help="Step size for all samplers, or NAME=NUMBER for one; may be repeated. 0.1 by default."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Number of components in a batch.", min=1)] = 1,
    epoch_length: Annotated[
        int | None, typer.Option(help="Steps between snapshots; n // batch-size by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; it fixes the target and every draw.", min=0)] = 0,
    plot: Annotated[Path, typer.Option(help="File for the figure (.png, .svg or .pdf).")] = Path("compare.png"),
) -> None:
    """Compare samplers by how close to a known target they come for how many passes over the data.

    The target is the synthetic one of the SVR-HMC paper (Zou, Xu & Gu, ICML
    2018): a Gaussian, exp(-f) with f the mean of n quadratic functions (its
    components), whose centres are drawn from N(2, 4I) and which share a matrix
    with eigenvalues from 2/3 to 3/2. Chains start at 0. The table shows the
    2-Wasserstein distance to the target twice for each sampler: estimated from
    the chains, and computed from the sampler's exact mean and covariance at
    that step. The floor is what the estimate would show on average (in the root
    mean square) for exact draws from the target.

    [bold]Example[/bold]: svrhmc compare-samplers --samplers sg-hmc,svr-hmc --n 1000 --passes 5 --step-size sg-hmc=0.05
    """
    chosen = list(METHODS) if samplers == "all" else [name.strip().replace("_", "-") for name in samplers.split(",")]
    sizes = _step_sizes(step_size or [_DEFAULT_STEP], chosen)
    target = svrhmc.targets.synthetic(n, dim, seed=seed)
    built = [(LABELS[name], _sampler(name, sizes[name], batch_size, epoch_length)) for name in chosen]
    _check_figure(plot)
    curves = compare_samplers(target, built, passes, chains, seed)
    console = Console()
    console.print(_table(curves, passes, f"W₂ to N(x*, S⁻¹), n = {n}, d = {dim}, {chains} chains, seed {seed}"))
    for curve in curves:
        console.print(
            f"{curve.name:>8}: {curve.steps} steps in {curve.seconds:.1f} s, {curve.sampler}", highlight=False
        )
    with writing():
        plot_comparison(curves, f"Synthetic target, n = {n}, d = {dim}, {chains} chains", plot)
    show(f"Figure: {plot}")


@app.command("plan")
def plan_command(
    accuracy: Annotated[float, typer.Option(help="The 2-Wasserstein distance ε to reach.")],
    n: Annotated[int | None, typer.Option(help="Number n of components of f; of a regression, its rows.")] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension d of the target.")] = None,
    smoothness: Annotated[float | None, typer.Option(help="Smoothness constant L of f: the largest curvature.")] = None,
    convexity: Annotated[
        float | None, typer.Option(help="Strong convexity constant μ of f: the smallest curvature.")
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="Upper bound on the distance from the start to the minimiser of f; 0 by default."),
    ] = None,
    gradient_variance: Annotated[
        float | None,
        typer.Option(help="Mean of |∇fᵢ(x*)|² over the components at the minimiser x*; needed for SGLD and SG-HMC."),
    ] = None,
    component_smoothness: Annotated[
        float | None, typer.Option(help="Smoothness constant of the components, if it is larger than that of f.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Data file to use instead of the constants: a .csv whose last column is y, or an .npz with X and y."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Model for --data: logistic or linear.")] = "logistic",
    prior_precision: Annotated[float, typer.Option(help="Prior precision of the coefficients, for --data.")] = 1.0,
    start: Annotated[str, typer.Option(help="Where the chains start, for --data: origin or mode.")] = "origin",
    method: Annotated[
        str,
        typer.Option(
            help=f"Sampler to plan: {', '.join(METHODS)}; with a small linear --data also {' or '.join(TABLED)}.",
        ),
    ] = "svr-hmc",
    rule: Annotated[
        str, typer.Option(help="How the plan is found: exact, corollary or repaired (see above).")
    ] = "exact",
    importance: Annotated[
        bool, typer.Option("--importance", help="Draw rows by importance; only with --rule exact and --data.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="File for a figure of the cost against n (.png, .svg or .pdf).")
    ] = None,
) -> None:
    """Find the step size and the number of steps that reach an accuracy, and compare what the methods cost.

    The target is exp(-f), where f is the mean of n components. Describe it by
    its constants (--n, --dim, --smoothness, --convexity), or give a data file,
    from whose posterior they are computed. There are three rules: exact (the
    default) uses the exact distribution of the sampler on a quadratic f, and
    says what that assumes; corollary solves Theorem 1 of the SVR-HMC paper (Zou,
    Xu & Gu, ICML 2018), corrected; repaired uses a bound that this package
    proves instead. The table of costs is the paper's Table 1 with one exponent
    corrected and, for SGLD and SG-HMC, with the cost of a run without noise,
    which the paper leaves out.

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
    plan = theory.plan(subject, accuracy, method, rule, begin, importance)
    show(str(problem))
    Console().print(_complexity_table(comparison))
    for line in comparison.remarks:
        show(line)
    show("")
    show(str(plan))
    if plot is not None:
        with writing():
            plot_complexity(comparison, plot)
        show(f"Figure: {plot}")


@app.command("reproduce")
def reproduce_command(
    part: Annotated[
        str, typer.Argument(help="What to make: figure1, figure2, figure3, table1, table3 or all.")
    ] = "all",
    out: Annotated[Path, typer.Option(help="Folder for the figures, tables and the report.")] = Path("reproduced"),
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="SVRHMC_DATA",
            help="Folder with the published files, such as a3a/a3a.xz; missing ones are downloaded.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Make a small version of everything, in minutes.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of runs for figures 2 and 3 and Table 3; 20 by default.", min=1)
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes; as many as there are cores by default.", min=1)
    ] = None,
) -> None:
    """Repeat the experiments of the SVR-HMC paper (Zou, Xu & Gu, ICML 2018): figures, tables and a report.

    If it is interrupted, start it again and it continues where it stopped. A
    data set that cannot be obtained is left out. The rest still runs; at the
    end one line for each missing data set says why it is missing and what to
    do, and the exit code is 1.

    The files in --data keep their published names. They may be plain, .xz, .gz,
    .bz2 or in the publisher's archive. Each data set has its own folder:
    pima/diabetes; a3a/a3a and a3a.t; gisette/gisette_train.data,
    gisette_train.labels, gisette_valid.data and gisette_valid.labels (or
    gisette_scale and gisette_scale.t); mushrooms/mushrooms; noise/airfoil_self_noise.dat;
    geographical/default_features_1059_tracks.txt; toms/TomsHardware.data;
    parkinson/parkinsons_updrs.data; casp/CASP.csv. docs/data.md has the details.

    [bold]Example[/bold]: svrhmc reproduce figure1 --quick --out quick
    """
    from svrhmc.paper.report import REPORT
    from svrhmc.paper.run import PARTS, WORK, reproduce

    one_of("PART", part, (*PARTS, "all"))
    if data is not None and not data.is_dir():
        raise requirement("--data", "a folder", data)
    require_matplotlib()
    for folder in (out, out / WORK):
        require_folder("--out", folder, parents=True)
    require_place("--out", out / REPORT)
    interruption = "Interrupted. Run the same command again to continue from here."
    processes.set_interrupt_message(interruption)
    try:
        with writing():
            finished = reproduce(PARTS if part == "all" else (part,), out, data, quick, seeds, jobs, show)
    except KeyboardInterrupt:
        raise interrupted(interruption) from None
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise RuntimeError(
            f"a result in {out / WORK} cannot be used ({type(error).__name__}: {error}). Please remove that folder "
            "and run the same command again, to start over."
        ) from error
    show(f"Report: {finished.report}")
    for line in finished.missing:
        say(f"[bold red]missing:[/bold red] {escape(line)}")
    if finished.missing:
        raise typer.Exit(1)


@app.command("warm")
def warm_command(
    model: Annotated[str, typer.Option(help="Models to compile for: logistic, linear or all.")] = "all",
) -> None:
    """Compile in advance, so that no run has to wait for it.

    This compiles the loops of all samplers for logistic and linear models, for
    dense and sparse rows, in float64 and float32. It takes some minutes on a new
    machine, and a second or two for each loop that was compiled before. The
    compiled code is kept in the package's folder if that can be written to, and
    otherwise in SVRHMC_CACHE, $XDG_CACHE_HOME/svrhmc or ~/.cache/svrhmc.

    [bold]Example[/bold]: svrhmc warm --model logistic
    """
    one_of("--model", model, (*MODELS, "all"))
    folder = code_cache.cache_folder()
    if folder is None:
        allowed = "a folder that can be written to, for compiled code"
        raise requirement(
            "SVRHMC_CACHE", allowed, "none", "without one, the compiled code would be lost when this process ends"
        )
    seconds = warm(tuple(kind for kind in KINDS if model in ("all", kind.model)), show)
    show(f"Compiled in {seconds:.0f} s. The code is kept in {folder}")


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
            raise requirement("--data", "given without constants", ", ".join(beside), "they are computed from the data")
        one_of("--model", model, ("logistic", "linear"))
        build = svrhmc.targets.logistic if model == "logistic" else svrhmc.targets.linear
        X, y = read_table(data)
        target: svrhmc.targets.FiniteSum = build(X, y, prior_precision=prior_precision)
        return target
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
    """With those of the settings that it takes."""
    settings = {"batch_size": batch_size, "epoch_length": epoch_length}
    parameters = signature(METHODS[name]).parameters
    return METHODS[name](step_size, **{key: value for key, value in settings.items() if key in parameters})


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
