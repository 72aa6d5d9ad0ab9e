"""The posteriors of posteriordb with reference draws: verdicts, errors and seconds as a table in Markdown.

    python benchmarks/posteriordb.py --folder DIR [--names a,b] [--seeds 0,1,2] [--workers 1] [--nuts] [--natural]

DIR has `models.py`, with `MODELS[name] = (NumPyro model, loader of its arguments, map from its names to Stan's)` and
`NATURAL[name] = (model, loader)`; and `reference.json.gz`, with the names and the moments (mean, sd, standard error of
each) of the reference draws. Nothing of it is copied. `svrhmc.sample` runs with its defaults, in a process of its own
for every posterior and seed; with --nuts NumPyro's NUTS runs beside it, 4 chains of 1,000 draws after 1,000 of warm-up,
in float64. Seconds are those that a whole call took of the processors, with compilation: of all threads together, so
that they can be more than the clock's, and hardly depend on what else the machine does. z is the difference of a mean
or an sd from that of the reference, divided by the standard error of both together; of the sds too small to matter
(below 1e-12 of the mean, where a reference was printed with ten digits) none is compared, nor of parameters whose tails
are so heavy that none is reported (those are named below the table).

With --record FILE every run is added to that file as one line of JSON, and is not made again. Of z-scores that are
right, one of 1,944 (324 parameters, means and sds, three seeds) is beyond 4.5 by chance in one table of 80.
"""

import argparse
import gzip
import importlib.metadata
import importlib.util
import json
import resource
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent / "results" / "posteriordb.md"
ALLOWED = 4.5  # of |z|
DECIDED = ("exact", "certified", "local")
LIMIT = 1200  # processor seconds of one run
_IDLE = 20  # times as many seconds of the clock, after which a run hangs, whatever else the machine does
NATURAL = " (natural)"  # after the name of a posterior: as a user would first write it
HEAD = (
    "| posterior | parameters | seed | verdict | processor s | largest \\|z\\| of means | of sds "
    "| NUTS: processor s | largest \\|z\\| |",
    "|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Job:
    """One run: who makes it ("sample" or "nuts"), of which posterior, from which seed."""

    name: str
    seed: int
    who: str = "sample"


def load(folder):
    """The module `models.py` of the folder, and the reference moments by name."""
    spec = importlib.util.spec_from_file_location("posteriordb_models", folder / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with gzip.open(folder / "reference.json.gz", "rt") as file:
        return module, json.load(file)


def scores(names, moments, reference, to_stan):
    """z of means and of sds of the parameters that the reference has, by Stan's names; none where no sd is reported."""
    known = dict(zip(reference["names"], reference["moments"], strict=True))
    to_stan = to_stan.get if isinstance(to_stan, dict) else to_stan
    found = {}
    columns = zip(names, moments.mean, moments.sd, moments.mean_error, moments.sd_error, strict=True)
    for name, mean, sd, mean_error, sd_error in columns:
        if (stan := to_stan(name)) in known:
            there, there_sd, there_error, there_sd_error = known[stan]
            if there_sd > 1e-12 * abs(there) and np.isfinite(sd):
                found[stan] = (
                    (mean - there) / np.hypot(mean_error, there_error),
                    (sd - there_sd) / np.hypot(sd_error, there_sd_error),
                )
    return found


def model_of(module, name):
    """The model, its arguments and the map to Stan's names."""
    plain = name.removesuffix(NATURAL)
    function, arguments, to_stan = module.MODELS[plain.split(" (")[0]]
    if name.endswith(NATURAL):
        function, arguments = module.NATURAL[plain]
    return function, arguments(), to_stan


def by_sample(function, arguments, seed):
    """Verdict, names and moments of `svrhmc.sample`."""
    import svrhmc

    posterior = svrhmc.sample(svrhmc.targets.from_numpyro(function, **arguments), seed=seed)
    verdict = {"verdict": posterior.certificate.verdict, "why": str(posterior.certificate), "how": posterior.why}
    verdict |= {"steps": posterior.steps, "ess": float(posterior.ess.min()), "passes": posterior.passes}
    return verdict, posterior.parameters.names, posterior.parameters.moments


def by_nuts(function, arguments, seed):
    """The same of NUTS."""
    import jax
    from numpyro.infer import MCMC, NUTS

    from svrhmc.sampling.answer import Parameters

    jax.config.update("jax_enable_x64", True)
    mcmc = MCMC(NUTS(function), num_warmup=1000, num_samples=1000, num_chains=4, progress_bar=False)
    mcmc.run(jax.random.key(seed), **arguments, extra_fields=("diverging",))
    names, columns = [], []
    for name, draws in mcmc.get_samples(group_by_chain=True).items():
        for place in np.ndindex(*draws.shape[2:]):
            names.append(f"{name}[{', '.join(map(str, place))}]" if place else name)
            columns.append(np.asarray(draws[(slice(None), slice(None), *place)]))
    divergences = int(np.asarray(mcmc.get_extra_fields()["diverging"]).sum())
    parameters = Parameters(tuple(names), np.stack(columns, axis=-1))
    return {"verdict": f"{divergences} divergences"}, parameters.names, parameters.moments


def made(job, folder):
    """One run, as a record."""
    warnings.simplefilter("ignore")
    module, references = load(folder)
    function, arguments, to_stan = model_of(module, job.name)
    reference = references[job.name.split(" (")[0]]
    began, began_processor = time.perf_counter(), time.process_time()
    verdict, names, moments = {"sample": by_sample, "nuts": by_nuts}[job.who](function, arguments, job.seed)
    seconds = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - began_processor}
    found = scores(names, moments, reference, to_stan)
    z = {name: [float(mean), float(sd)] for name, (mean, sd) in found.items()}
    without = [name for name, sd in zip(names, moments.sd, strict=True) if np.isnan(sd)]
    return {**asdict(job), **verdict, **seconds, "parameters": len(reference["names"]), "z": z, "without sd": without}


def in_child(job, folder, limit):
    """One run in a process of its own, which ends at the limit, or where it hangs."""
    command = [sys.executable, __file__, "--folder", str(folder), "--child", json.dumps(asdict(job))]
    began = time.perf_counter()
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_IDLE * limit,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5)),
        )
    except subprocess.TimeoutExpired:
        return {**asdict(job), "verdict": "hung", "seconds": float(_IDLE * limit), "z": {}}
    if ended.returncode == -signal.SIGXCPU:
        return {**asdict(job), "verdict": "not ended", "seconds": float(limit), "z": {}}
    if ended.returncode:
        told = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
        return {**asdict(job), "verdict": "error", "why": told, "seconds": time.perf_counter() - began, "z": {}}
    return json.loads(ended.stdout.splitlines()[-1])


def recorded(path):
    """Runs that were made before."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {Job(line["name"], line["seed"], line["who"]): line for line in lines}


def worst(record, which):
    """The largest |z| and its parameter."""
    if not record["z"]:
        return None
    name = max(record["z"], key=lambda name: abs(record["z"][name][which]))
    return abs(record["z"][name][which]), name


def taken(record):
    """Processor seconds; of a run that did not end by itself the seconds until then."""
    return f"{record['processor_seconds']:.0f}" if "processor_seconds" in record else f"({record['seconds']:.0f})"


def table(records):
    """Lines of Markdown: a row for each run, and what they come to."""
    lines, ours = list(HEAD), [record for job, record in records.items() if job.who == "sample"]
    for record in sorted(ours, key=lambda record: (record["name"], record["seed"])):
        other = records.get(Job(record["name"].removesuffix(NATURAL), record["seed"], "nuts"))
        cells = [f"`{record['name']}`", f"{record.get('parameters', '')}", f"{record['seed']}", record["verdict"]]
        cells += [taken(record)]
        cells += ["" if (z := worst(record, which)) is None else f"{z[0]:.2f} `{z[1]}`" for which in (0, 1)]
        theirs = [] if other is None else [z[0] for which in (0, 1) if (z := worst(other, which))]
        cells += ["", ""] if other is None else [taken(other), f"{max(theirs):.2f}" if theirs else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *totals(ours)]


def totals(ours):
    """What all runs come to, in sentences."""
    decided = [record for record in ours if record["verdict"] in DECIDED]
    z = np.array([pair for record in decided for pair in record["z"].values()]).reshape(-1, 2)
    wrong = [
        f"`{r['name']}` (seed {r['seed']})" for r in decided if np.abs([*r["z"].values()]).max(initial=0) >= ALLOWED
    ]
    rms = np.sqrt((z * z).mean(axis=0)) if len(z) else np.full(2, np.nan)
    heavy = [f"`{r['name']}` (seed {r['seed']}): {', '.join(some)}" for r in ours if (some := r.get("without sd"))]
    return [
        f"{len(decided)} of {len(ours)} runs decided; {len(wrong)} of those with a |z| of {ALLOWED} or more"
        + (f": {', '.join(wrong)}." if wrong else "."),
        f"Root mean square of z over {len(z):,} parameters: {rms[0]:.2f} of means, {rms[1]:.2f} of sds.",
        *([f"No sd is reported of heavy tails: {'; '.join(heavy)}."] if heavy else []),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--names", help="of posteriors, or parts of these names, with commas; without it, all")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--nuts", action="store_true")
    parser.add_argument("--natural", action="store_true", help="the natural forms in place of those with rows")
    parser.add_argument("--limit", type=float, default=LIMIT, help="processor seconds of one run")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(made(Job(**json.loads(chosen.child)), chosen.folder)))
        return
    module, _ = load(chosen.folder)
    names = [name + NATURAL for name in module.NATURAL] if chosen.natural else list(module.MODELS)
    if chosen.names:
        names = [name for name in names if any(part in name for part in chosen.names.split(","))]
    who = ("sample", "nuts") if chosen.nuts else ("sample",)
    jobs = [Job(name, int(seed), one) for seed in chosen.seeds.split(",") for name in names for one in who]
    records = {job: record for job, record in recorded(chosen.record).items() if job in jobs}

    def run(job):
        if job in records:
            return
        records[job] = record = in_child(job, chosen.folder, chosen.limit)
        if chosen.record:
            with chosen.record.open("a") as file:
                file.write(json.dumps(record) + "\n")
        largest = [f"{z[0]:.2f}" for which in (0, 1) if (z := worst(record, which))]
        told = (job.who, job.name, job.seed, record["verdict"], f"{record['seconds']:.0f} s", *largest)
        print(*told, record.get("why", "") if not largest else "", flush=True)

    with ThreadPoolExecutor(chosen.workers) as pool:
        list(pool.map(run, jobs))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("svrhmc", "jax", "numpyro"))
    told = " ".join(__doc__.split("\n\n")[2].split())
    lines = ["# posteriordb", "", f"`python benchmarks/posteriordb.py`; {versions}. {told}", "", *table(records)]
    chosen.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[4:]))


if __name__ == "__main__":
    main()
