"""A model outside of svrhmc: as JSON that a script reads, as SQL that DuckDB and PostgreSQL run, as a graph of ONNX."""

import io
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse

import svrhmc
from svrhmc.core.errors import DataError
from svrhmc.fitting import regress
from svrhmc.results.export import NODES, PREDICTED, WEIGHTS
from svrhmc.tables.design import designed

duckdb, onnxruntime = pytest.importorskip("duckdb"), pytest.importorskip("onnxruntime")
PAGE = Path(__file__).parents[1] / "docs" / "production.md"
SCRIPT = next(
    code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "import json, math" in code
)
NAMES = list(PREDICTED)


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.uniform(1, 5, n), "z": rng.normal(2000, 1, n), "e": rng.uniform(0.5, 2, n), "k": rng.integers(0, 3, n),
            "plan": rng.choice(["a", "b's", "c"], n), "school": rng.choice(["u", "v", "w", "q"], n),
        }
    )  # fmt: skip


def predictor(rows):
    return 0.3 * rows.x - 0.5 * (rows.plan == "c") + 0.3 * (rows.school == "u") - 1


CASES = {
    "gaussian": ("y ~ poly(x, 3) + z*plan", lambda t, rng: t + rng.normal(size=len(t)), {}),
    "bernoulli": ("y ~ s(x) + plan + (1 | school)", lambda t, rng: (rng.random(len(t)) < 1 / (1 + np.exp(-t))) * 1.0, {}),
    "poisson": ("y ~ bs(x, df=5) + plan + (1 + x | school)", lambda t, rng: rng.poisson(np.exp(t)), {"exposure": "e"}),
    "negative-binomial": ("y ~ C(k, Sum)*plan + np.log(x)", lambda t, rng: rng.poisson(np.exp(t) * rng.gamma(2, 0.5, len(t))), {}),
    "gamma": ("y ~ cr(x, df=4) + plan:scale(z) + plan", lambda t, rng: np.exp(t) * rng.gamma(2, 0.5, len(t)), {"offset": "z"}),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids=str)
def fitted(request):
    formula, draw, more = CASES[request.param]
    rows = table(400)
    if more.get("offset"):
        rows["z"] -= 2000
    y = draw(predictor(rows).to_numpy(), np.random.default_rng(1))
    posterior = svrhmc.fit(formula, rows.assign(y=y), request.param, draws=400, **more)
    return posterior, bool(more.get("offset"))


def inside(posterior, rows, mean_only=False):
    """Mean and sd of the linear predictor, from the design itself and the draws."""
    X = np.column_stack([np.ones(len(rows)), posterior.design.rows(rows)])
    edge, kept, shift = X.shape[1], posterior.group_effects, posterior.design.offsets(rows)
    x = posterior.trace.draws[:, :: 1 if kept is None else kept.every].reshape(-1, len(posterior.mean))
    beta = posterior.mean[None, :edge] if mean_only else x[:, :edge]
    t = (beta - beta.mean(axis=0)) @ X.T + posterior.mean[:edge] @ X.T
    parts = (
        []
        if kept is None
        else [kept.of_term(k).reshape(len(x), len(kept.levels[k]), -1) for k in range(len(kept.names))]
    )
    parts = [part.mean(axis=0, keepdims=True) for part in parts] if mean_only else parts
    if kept is not None:
        for k, basis in zip(kept.smooths, posterior.design.bases_of(rows), strict=True):
            t += parts[k][:, :, 0] @ basis.T
        for k, (index, columns) in zip(kept.groups, posterior.design.groups_of(rows), strict=True):
            t += np.einsum("drc,rc->dr", parts[k][:, index], columns)
    t += 0.0 if shift is None else shift
    return t.mean(axis=0), t.std(axis=0, ddof=0 if mean_only else 1)


def queried(posterior, rows, **more):
    connection = duckdb.connect()
    connection.register("new_rows", rows.assign(row=np.arange(len(rows))))
    return connection.execute(posterior.to_sql(**more)).df().sort_values("row")[NAMES].to_numpy()


def inferred(posterior, rows, texts=("plan", "school"), **more):
    session = onnxruntime.InferenceSession(posterior.to_onnx(**more))
    names = [one.name for one in session.get_inputs()]
    feed = {name: rows[name].to_numpy(object if name in texts else float) for name in names}
    return np.column_stack(session.run(NAMES, feed))


@pytest.mark.untraced
def test_sql_and_onnx_on_many_rows_and_the_script_on_some_agree_with_the_design(fitted):
    posterior, centred = fitted
    rows = table(100_000, seed=2)
    low, high = table(400).x.min(), table(400).x.max()
    rows["x"] = rows.x.clip(low, high)  # beyond its knots bs has no value
    rows["z"] -= 2000.0 * centred
    answers = queried(posterior, rows)
    np.testing.assert_allclose(answers[:, 0], inside(posterior, rows, mean_only=True)[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(answers[:1000, 1], inside(posterior, rows.head(1000))[1], rtol=1e-8)
    np.testing.assert_allclose(inferred(posterior, rows), answers, rtol=1e-9, atol=1e-9)
    t, s = answers[:, :1], answers[:, 1:2]
    loss = posterior.model.loss
    grid = np.linspace(-9, 9, 145)
    weights = np.exp(-(grid**2) / 2)

    def mu(t):
        return loss.mean(np.stack([t, np.zeros_like(t)], axis=-1) if loss.predictor_shape else t)

    exact = np.concatenate(
        [
            mu(a + b * grid) @ weights / weights.sum()
            for a, b in zip(np.array_split(t, 20), np.array_split(s, 20), strict=True)
        ]
    )
    np.testing.assert_allclose(answers[:, 2], exact, rtol=1e-8)
    np.testing.assert_allclose(
        answers[:, 3:], np.column_stack([mu(t - 1.6448536269514722 * s), mu(t + 1.6448536269514722 * s)]), rtol=1e-9
    )
    space = {}
    exec(SCRIPT, space)
    model = json.loads(posterior.export())
    some = np.array([space["predict"](model, row) for row in rows.head(100).to_dict("records")])
    np.testing.assert_allclose(some, answers[:100], rtol=1e-9, atol=1e-9)
    predicted = posterior.predict(rows.head(300))
    assert np.abs((answers[:300, 2] - predicted.mean) / predicted.sd).max() < 0.2  # Monte Carlo error of 1,000 draws
    assert np.abs((answers[:300, 3] - predicted.quantiles[0]) / predicted.sd).max() < 0.5


def test_the_script_is_short_and_imports_json_and_math_alone():
    assert sum(bool(line.strip()) for line in SCRIPT.splitlines()) <= 40
    assert re.findall(r"^import .*|^from .*", SCRIPT, re.M) == ["import json, math"]


def keys(value):
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from keys(one)
    elif isinstance(value, list):
        for one in value:
            yield from keys(one)


def test_every_field_is_documented_and_the_file_is_the_text(fitted, tmp_path):
    posterior, _ = fitted
    text = posterior.export(tmp_path / "model.json")
    assert (tmp_path / "model.json").read_text(encoding="utf-8") == text
    assert {key for key in keys(json.loads(text)) if f"`{key}`" not in PAGE.read_text()} == set()
    card = json.loads(text)["card"]
    assert card["rows"] == 400
    assert card["verdict"] == posterior.certificate.verdict
    posterior.save(tmp_path / "a.posterior")
    assert svrhmc.Posterior.load(tmp_path / "a.posterior").export() == text


def test_missing_values_and_unseen_levels_have_no_prediction_but_unseen_groups_have_a_wider_one():
    rows = table(300)
    y = predictor(rows) + np.random.default_rng(1).normal(size=300)
    posterior = svrhmc.fit("y ~ x + plan + (1 | school)", rows.assign(y=y), draws=400)
    odd = table(6).assign(plan="a", school="u", x=2.0)
    odd.loc[1, "x"] = np.nan
    odd["plan"], odd["school"] = odd["plan"].astype(object), odd["school"].astype(object)
    odd.loc[2, "plan"], odd.loc[3, "plan"], odd.loc[4, "school"], odd.loc[5, "school"] = None, "z", None, "new"
    answers = queried(posterior, odd)
    assert np.isnan(answers[1:5]).all()
    assert np.isfinite(answers[[0, 5]]).all()
    assert answers[5, 1] > answers[0, 1]
    np.testing.assert_allclose(inferred(posterior, odd), answers, rtol=1e-9)  # None is a missing text
    average = posterior.predict(odd.iloc[[5]], new_groups="average")
    assert abs(answers[5, 0] - average.mean[0]) < 0.2 * average.sd[0]


@pytest.mark.parametrize("formula", ["y ~ x + np.sqrt(x) + np.exp(x / 5)", "y ~ z + I(z**2) + code"])
def test_columns_that_nearly_add_up_to_each_other_have_the_sd_of_their_sum(formula):
    """Of single coefficients the sd is hundreds of times that of t: each in units of its own would spoil it."""
    rows = table(2000)
    rows["code"] = [f"c{k % 130}" for k in range(2000)]
    rows["y"] = predictor(rows) + np.random.default_rng(1).normal(size=2000)
    posterior = svrhmc.fit(formula, rows, "gaussian", draws=400)
    columns = posterior.design.rows(rows)
    X = columns.toarray() if issparse(columns) else columns
    Q = np.linalg.qr(np.column_stack([np.ones(2000), X - X.mean(axis=0)]))[0]
    exact = np.exp(posterior.mean[-1]) * np.sqrt((Q**2).sum(axis=1))  # under a flat prior
    ratio = queried(posterior, rows)[:, 1] / exact
    assert np.abs(np.median(ratio) - 1) < 0.1
    assert 0.5 < ratio.min() <= ratio.max() < 1.5  # the prior counts where z is extreme


def test_many_levels_have_a_covariance_of_low_rank_with_the_variances_of_the_draws():
    rng = np.random.default_rng(0)
    school = np.array([f"s{k}" for k in range(120)])[np.arange(960) % 120]
    y = rng.normal(size=120)[np.arange(960) % 120] + rng.normal(size=960)
    rows = pd.DataFrame({"school": school, "y": y})
    posterior = svrhmc.fit("y ~ 1 + (1 | school)", rows, draws=400)
    model = json.loads(posterior.export())
    assert model["covariance"]["rank"] == 34  # intercept, log sigma, and 32 directions
    assert not model["covariance"]["exact"]
    effects = [level["effects"][0] for level in model["groups"][0]["levels"]]
    variances = [sum(f * f for f in one["factor"]) + one["remainder"] for one in effects]
    np.testing.assert_allclose(variances, posterior.group_effects.draws.reshape(-1, 120).var(axis=0, ddof=1), rtol=1e-9)
    mean, sd = inside(posterior, rows.head(120))
    answers = queried(posterior, rows.head(120))
    np.testing.assert_allclose(answers[:, 0], mean, atol=1e-9)
    assert np.abs(answers[:, 1] / sd - 1).max() < 0.25  # what a low rank leaves out


@pytest.mark.parametrize(
    "formula",
    ["y ~ plan*k*x", "y ~ plan:bs(x, df=5) + plan", "y ~ C(plan, Helmert):x", "y ~ C(k, Sum)*x", "y ~ 0 + plan*x", "y ~ s(x, by=plan) + plan",
     "y ~ bs(np.log(x), df=4, include_intercept=True):z", "y ~ np.where(x > 2, z, 0) + np.clip(x, 2, 3) + I(k == 1)", "y ~ cs(x, df=4) + bs(x, df=6, degree=2, extrapolation='clip')"],
)  # fmt: skip
def test_expressions_are_the_columns_of_the_design(formula):
    rows = table(200)
    made = designed(formula, rows.assign(y=np.random.default_rng(0).normal(size=200)))
    space = {}
    exec(SCRIPT, space)
    expressions = [one for term in made.design.made_of for one in term.portable()]
    values = [[space["value"](one, row) for one in expressions] for row in rows.head(60).to_dict("records")]
    np.testing.assert_allclose(values, made.X[:60], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("formula", ["y ~ cc(x, df=4)", "y ~ hashed(plan, levels=4)", "y ~ f(x)", "y ~ np.round(x)"])
def test_what_no_other_language_computes_is_refused(formula):
    rows = table(100).assign(y=np.arange(100.0))
    made = designed(formula, rows, transforms={"f": lambda x: x**2})
    with pytest.raises(DataError, match="cannot be exported"):
        [one for term in made.design.made_of for one in term.portable()]


def test_a_column_with_the_name_of_a_prediction_is_refused():
    posterior = regress(np.arange(6.0)[:, None], np.arange(6.0) ** 1.5, names=["predicted_mean"], draws=200)
    for write in (posterior.to_sql, posterior.to_onnx):
        with pytest.raises(DataError, match="name of a prediction: rename it"):
            write()


def test_models_of_arrays_are_exported_and_several_probabilities_are_refused_in_sql():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    posterior = regress(X, X @ [1.0, 2.0] + rng.normal(size=60), names=["a", "b"], draws=200)
    answers = queried(posterior, pd.DataFrame({"a": [1.0], "b": [2.0]}))
    np.testing.assert_allclose(answers[0, 0], posterior.mean[:3] @ [1, 1, 2], rtol=1e-9)
    classes = regress(X, rng.integers(0, 3, 60), "categorical", draws=200)
    assert len(json.loads(classes.export())["predictors"]) == 2
    with pytest.raises(DataError, match="several probabilities"):
        classes.to_sql()
    with pytest.raises(DataError, match="several probabilities"):
        classes.to_onnx()
    with pytest.raises(ValueError, match="dialect"):
        posterior.to_sql("oracle")


def test_estimators_are_exported_with_groups_classes_and_the_name_of_y():
    rng = np.random.default_rng(0)
    school = rng.integers(0, 8, 200)
    X = pd.DataFrame({"age": rng.uniform(6, 12, 200), "school": [f"s{k}" for k in school]})
    y = pd.Series(np.where(rng.random(200) < 0.3 + 0.05 * school, "yes", "no"), name="passed")
    model = svrhmc.BayesianLogisticRegression(groups=["school"], draws=100).fit(X, y)
    document = json.loads(model.posterior_.export())
    assert (document["classes"], document["response"]) == (["no", "yes"], "passed")
    assert [one["kind"] for one in document["variables"]] == ["number", "group"]
    new = pd.DataFrame({"age": [7.0, 9.0], "school": ["s3", "s7"]})
    expected = model.predict_proba(new)[:, 1]
    assert inferred(model.posterior_, new)[:, 2] == pytest.approx(expected, abs=0.01)
    assert queried(model.posterior_, new)[:, 2] == pytest.approx(expected, abs=0.01)
    several = svrhmc.BayesianLogisticRegression(draws=100).fit(X[["age"]], np.array(["a", "b", "c"])[school % 3])
    document = json.loads(several.posterior_.export())
    assert [one["class"] for one in document["predictors"]] == ["b", "c"]


def test_columns_without_names_are_one_input_and_one_hot_ones_share_a_covariance_of_low_rank(tmp_path):
    rng = np.random.default_rng(0)
    level = rng.integers(0, 300, 1500)
    X = np.column_stack([rng.normal(size=1500), np.eye(300)[level]])
    y = rng.normal(0, 1, 300)[level] + X[:, 0] + rng.normal(size=1500)
    model = svrhmc.BayesianRegression(prior_scale=0.5, draws=400).fit(X, y)
    document = json.loads(model.posterior_.export())
    assert document["matrix"]
    assert document["covariance"]["rank"] < 50
    assert model.posterior_.to_onnx(tmp_path / "model.onnx") == tmp_path / "model.onnx"
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [one.name for one in session.get_inputs()] == ["X"]
    gap = X[:5].copy()
    gap[4, 7] = np.nan
    mean, sd = session.run(["predicted_mean", "predicted_linear_sd"], {"X": gap})
    assert mean[:4] == pytest.approx(model.predict(X[:4]), rel=1e-9)
    assert sd[:4] == pytest.approx(
        (model.posterior_.trace._flat()[:, :-1] @ np.insert(X[:4], 0, 1, 1).T).std(axis=0), rel=0.1
    )
    assert np.isnan(mean[4])


@pytest.fixture(scope="module")
def postgresql():
    """A server of its own, which listens in its folder alone; gives a function that runs statements by psql."""
    if shutil.which("initdb") is None:
        pytest.skip("there is no PostgreSQL on this machine")
    user = {"user": "nobody"} if os.geteuid() == 0 else {}  # the server refuses to run as root
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        data = f"{folder}/data"

        def control(*arguments):
            subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)

        control("initdb", "-D", data, "-U", "tester", "--auth=trust")
        control("pg_ctl", "-D", data, "-o", f"-k {folder} -c listen_addresses=''", "-l", f"{folder}/log", "-w", "start")

        def run(statements):
            command = ["psql", "-h", folder, "-U", "tester", "postgres", "-q", "-v", "ON_ERROR_STOP=1", "--csv"]
            return subprocess.run(command, input=statements, capture_output=True, text=True, check=True).stdout

        try:
            yield run
        finally:
            control("pg_ctl", "-D", data, "-m", "immediate", "stop")


@pytest.mark.slow
def test_postgresql_gives_the_numbers_of_duckdb(fitted, postgresql, tmp_path):
    posterior, centred = fitted
    rows = table(5000, seed=2).assign(row=np.arange(5000))
    rows["x"] = rows.x.clip(table(400).x.min(), table(400).x.max())
    rows["z"] -= 2000.0 * centred
    for column in ("plan", "school"):
        rows[column] = rows[column].astype(object)
    rows.loc[1, "x"], rows.loc[2, "plan"], rows.loc[3, "plan"], rows.loc[4, "school"] = np.nan, None, "z", "new"
    columns = ["x", "z", "e", "k", "plan", "school", "row"]
    rows[columns].to_csv(tmp_path / "rows.csv", index=False)
    kinds = ", ".join(
        f"{name} {kind}" for name, kind in zip(columns, [*["float8"] * 3, "int", "text", "text", "int"], strict=True)
    )
    postgresql(
        f"DROP TABLE IF EXISTS new_rows; CREATE TABLE new_rows ({kinds});\n\\copy new_rows FROM '{tmp_path}/rows.csv' WITH (FORMAT csv, HEADER)"
    )
    answers = pd.read_csv(io.StringIO(postgresql(posterior.to_sql("postgresql") + " ORDER BY row")))[NAMES].to_numpy()
    np.testing.assert_allclose(answers, queried(posterior, rows.drop(columns="row")), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("link", "mean"), [("exp", lambda t, s: np.exp(t + s**2 / 2)), ("logistic", None)])
@pytest.mark.parametrize(("sd", "error"), [(0.01, 1e-12), (0.5, 1e-12), (2.0, 1e-7), (3.0, 2e-5), (4.0, 4e-4)])
def test_the_quadrature_has_the_error_that_is_documented(link, mean, sd, error):
    t = np.linspace(-30, 30, 61)
    inverse = {"exp": np.exp, "logistic": lambda t: 1 / (1 + np.exp(-t))}[link]
    fine = np.linspace(-12, 12, 24001)
    density = np.exp(-(fine**2) / 2) * (fine[1] - fine[0]) / np.sqrt(2 * np.pi)
    exact = mean(t, sd) if mean else inverse(t[:, None] + sd * fine) @ density
    np.testing.assert_allclose(inverse(t[:, None] + sd * NODES) @ WEIGHTS, exact, rtol=error)


@pytest.mark.parametrize("dialect", ["postgresql", "bigquery"])
def test_other_dialects_write_the_same_numbers(dialect):
    rows = table(100)
    posterior = svrhmc.fit("y ~ x + plan + (1 | school)", rows.assign(y=predictor(rows) + np.sin(rows.z)), draws=200)
    numbers = [set(re.findall(r"\d\.\d{6,}", posterior.to_sql(one))) for one in ("duckdb", dialect)]
    assert numbers[0] == numbers[1]
    text = posterior.to_sql(dialect)
    assert ("'b''s'" in text) if dialect == "postgresql" else (r"'b\'s'" in text and "VALUES" not in text)
