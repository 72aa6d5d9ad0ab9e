"""Models of JAX functions and the engine that runs them: the same paths, the same law, honest verdicts, clear errors."""

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest

import svrhmc
from conftest import every_target
from svrhmc import Sampler, dynamics, gradients, sample, targets
from svrhmc.core import jax as core_jax
from svrhmc.engines import State, chains, estimates
from svrhmc.whitening import whitened

jax = pytest.importorskip("jax")
jnp = jax.numpy

ROWS = np.random.default_rng(3)
X = ROWS.normal(size=(300, 2))
Y = (ROWS.random(300) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(float)


def log_likelihood(params, row):
    x, y = row
    t = x @ params["w"] + params["b"]
    return y * t - jnp.logaddexp(0.0, t)


def log_prior(params):
    return -0.5 * (jnp.sum(params["w"] ** 2) + params["b"] ** 2)


def logistic(**more):
    return targets.model(log_likelihood, log_prior, (X, Y), {"w": np.zeros(2), "b": 0.0}, **more)


def by_rows():
    return targets.logistic(np.column_stack([np.ones(300), X]), Y)


def in_engine(name, sampler, target, steps, **settings):
    return sampler.run(target, steps, chains=2, seed=4, engine=name, **settings).draws


@pytest.mark.ordinary(lambda gradient: gradient == gradients.SVRG(3, 7))
@pytest.mark.parametrize("gradient", [gradients.SVRG(3, 7), gradients.SAGA(2), gradients.Minibatch(2, False)], ids=str)
def test_a_model_and_its_rows_have_one_path(gradient):
    """Functions by JAX and by the reference, and the same model as rows: three ways to the same states."""
    sampler = Sampler(dynamics.UBU(0.05, 2.0, 0.02), gradient)
    model, rows = logistic(), by_rows()
    found = in_engine("jax", sampler, model, 60)
    assert found == pytest.approx(in_engine("reference", sampler, rows, 60), abs=1e-11)
    assert found[:, :20] == pytest.approx(in_engine("reference", sampler, model, 20), abs=1e-11)


@pytest.mark.parametrize("gradient", [gradients.Full(), gradients.ControlVariate(16)], ids=str)
def test_many_estimates_do_not_depend_on_how_they_are_divided(gradient):
    """To the bit, as a call that is killed divides them otherwise; and no piece needs a program of its own."""
    target, states = whitened(logistic()), np.random.default_rng(0).normal(size=(150, 3))
    sampler = Sampler(dynamics.UBU(0.3, 1.0, 0.5), gradient)

    def at(first, end):
        return estimates(sampler.setup(target, 6, np.arange(first, end), 1), states[first:end], 0)

    whole, cuts = at(0, 150), [0, 1, 9, 73, 86, 150]
    pieces = np.concatenate([at(first, end) for first, end in itertools.pairwise(cuts)])
    assert (pieces == whole).all()
    assert whole == pytest.approx(estimates(sampler.setup(target, 6, np.arange(150), 1), states, 0), rel=1e-9)


@pytest.mark.ordinary(lambda kind: kind == "logistic-csr")
@pytest.mark.parametrize("kind", ["logistic-csr", "gaussian-many"])
def test_rows_and_quadratics_follow_the_reference_over_1000_steps(rows, kind):
    sampler, target = svrhmc.svr_hmc(0.2, batch_size=2, epoch_length=3), every_target(rows)[kind]
    one, other = (in_engine(name, sampler, target, 1000, thin=7) for name in ("reference", "jax"))
    assert one == pytest.approx(other, abs=1e-9)


def test_cutting_a_run_changes_no_bit():
    sampler, target = Sampler(dynamics.UBU(0.05, 2.0, 0.02), gradients.SVRG(3, 7)), logistic()
    origin = np.zeros((3, 3))

    def made():
        return chains("jax", sampler.setup(target, 5, np.arange(3), 1), State(origin, origin.copy()))

    whole, cut = made(), made()
    draws = whole.extend(40).draws
    pieces = [cut.extend(count).draws for count in (1, 16, 3, 20)]
    assert (np.concatenate(pieces, axis=1) == draws).all()
    assert (whole.state.v == cut.state.v).all()
    assert all((whole.state.memory[name] == cut.state.memory[name]).all() for name in whole.state.memory)


@pytest.fixture(scope="module")
def posterior():
    return sample(logistic(), seed=2)


def test_a_posterior_of_functions_is_that_of_rows(posterior):
    known = sample(by_rows(), seed=2)
    assert posterior.certificate.verdict == "local"
    assert np.abs(posterior.mean - known.mean).max() < 0.02 * known.sd.min()
    assert posterior.sd == pytest.approx(known.sd, rel=0.02)
    assert (
        np.abs(posterior.mean - sample(targets.logistic(X, Y), seed=2).mean[0]).max() > known.sd.max()
    )  # another model


def test_names_are_those_of_the_params(posterior, tmp_path):
    assert posterior.names == ("b", "w[0]", "w[1]")
    assert "w[1]" in str(posterior.summary())
    posterior.save(tmp_path / "fit")
    again = svrhmc.Posterior.load(tmp_path / "fit")
    assert again.names == posterior.names
    found = again.to_arviz().posterior
    assert found["w"].dims == ("chain", "draw", "w_dim_0")
    assert (found["w"].values == posterior.trace.draws[:, :, 1:]).all()
    assert found["b"].dims == ("chain", "draw")


def test_parameters_come_back_as_the_model_states_them(tmp_path):
    y = 1.0 + 2.0 * ROWS.normal(size=200)

    def likelihood(params, row):
        return -0.5 * ((row - params["mu"]) / jnp.exp(params["sigma"])) ** 2 - params["sigma"]

    target = targets.model(
        likelihood,
        lambda params: -0.5 * (params["mu"] ** 2 + params["sigma"] ** 2) / 100,
        y,
        {"mu": 0.0, "sigma": 0.0},
        constrain=lambda params: {"mu": params["mu"], "sigma": jnp.exp(params["sigma"])},
    )
    assert target.names == ("mu", "sampled sigma")  # no number is read for another by its name
    posterior = sample(target, draws=400)
    sigma = posterior.parameters.by_name()["sigma"]
    assert posterior.probability("sigma < 2") == (sigma < 2).mean() > 0
    assert (posterior.draws_frame()["sigma"] == sigma.ravel()).all()
    assert (posterior.to_frame()["mean"] == posterior.summary().mean).all()
    assert f"sigma {posterior.summary().mean[1]:.4g}" in repr(posterior)
    assert [tick.get_text() for tick in posterior.plot().axes[0].get_yticklabels()] == ["mu", "sigma"]
    assert posterior.parameters.names == ("mu", "sigma")
    assert sigma == pytest.approx(np.exp(posterior.trace.draws[:, :, 1]))
    assert posterior.summary().names == ("mu", "sigma")
    assert posterior.summary().mean[1] == pytest.approx(y.std(), rel=0.1)
    assert posterior.summary().mean[0] == pytest.approx(
        posterior.mean[0], rel=1e-9
    )  # corrected, as that of the coordinate
    assert (posterior.summary(mcse=True).columns["mcse_mean"] < 0.2 * posterior.parameters.draws.std((0, 1)) / 20).all()
    assert "2 unconstrained coordinates" in str(posterior.summary())
    posterior.save(tmp_path / "fit")
    again = svrhmc.Posterior.load(tmp_path / "fit")
    assert (again.parameters.draws == posterior.parameters.draws).all()
    assert (again.summary().mean == posterior.summary().mean).all()
    thinned = again.to_arviz(draws=40).posterior
    assert set(thinned) == {"mu", "sigma"}
    assert thinned["sigma"].size == 40
    assert float(thinned["sigma"].min()) > 0


def test_a_posterior_of_functions_travels_without_them():
    posterior = sample(logistic(), draws=20)
    again = pickle.loads(pickle.dumps(posterior))
    assert (again.trace.draws == posterior.trace.draws).all()
    assert again.names == posterior.names
    assert str(again) == str(posterior)


def double_well(dim, depth):
    """Two wells at ±√depth in the first coordinate, N(0, 1) in the others."""

    def likelihood(params, row):
        return -0.25 * row * (params[0] ** 2 - depth) ** 2

    return targets.model(likelihood, lambda p: -0.5 * jnp.sum(p[1:] ** 2), np.full(4, 0.25), np.full(dim, 0.1))


@pytest.mark.ordinary(lambda dim: dim == 1)
@pytest.mark.parametrize("dim", [1, 20])
def test_modes_that_no_trajectory_leaves_have_their_weights(dim):
    target = double_well(dim, 9.0)
    posterior = sample(target, draws=400)
    assert sorted(target.modes()[:, 0].round(6)) == [-3.0, 3.0]
    assert posterior.certificate.verdict == "local"
    assert (np.abs(posterior.modes.weight - 0.5) < 4.5 * posterior.modes.error).all()
    assert abs(posterior.mean[0]) < 4.5 * posterior.errors[0][0]


def test_modes_between_which_chains_move_are_no_trouble():
    """A shallow double well: f = ¼(x² − 1)² has its two modes, and every chain sees both."""
    posterior = sample(double_well(1, 1.0), draws=2000, seed=3)
    x = np.linspace(-6, 6, 4001)
    density = np.exp(-0.25 * (x**2 - 1) ** 2)
    sd = np.sqrt((x**2 * density).sum() / density.sum())
    assert posterior.certificate.verdict == "local"
    assert abs(posterior.mean[0]) < 5 * posterior.errors[0][0]
    assert posterior.sd[0] == pytest.approx(sd, abs=5 * posterior.errors[1][0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_no_verdict_on_several_modes_is_wrong(seed):
    """A double well in 1 and 20 dimensions, and a mixture of three components with equal weights whose names are free:
    100 runs. Where weights are said to be known they are right: each of all labellings has the same.
    """
    for dim in (1, 20):
        posterior = sample(double_well(dim, 9.0), draws=100, seed=seed)
        assert (np.abs(posterior.modes.weight - 0.5) < 4.5 * posterior.modes.error).all()
    y = np.random.default_rng(seed).normal(size=150) * 0.3 + np.repeat([-4.0, 0.0, 4.0], 50)

    def likelihood(params, row):
        return jax.nn.logsumexp(-0.5 * ((row - params) / 0.3) ** 2)

    mixture = targets.model(likelihood, lambda p: -0.5 * jnp.sum(p**2) / 25, y, np.array([-1.0, 0.1, 1.0]))
    for other in (seed, seed + 1000):
        posterior = sample(mixture, draws=100, seed=other)
        assert posterior.certificate.verdict in ("local", "undecided")
        if posterior.modes.known:
            assert (
                np.abs(posterior.modes.weight - 1 / len(posterior.modes.weight)) < 4.5 * posterior.modes.error
            ).all()


@pytest.mark.slow
def test_a_bent_ridge_is_local_or_undecided():
    """x ~ N(1, 1) and y given x ~ N(x², 1/20): y has mean 2 and variance 6.05. Steps that are too long for its ends
    never get there, with many effective draws and chains that agree.
    """

    def likelihood(params, row):
        return -0.5 * ((1 - params[0]) ** 2 + row * (params[1] - params[0] ** 2) ** 2)

    target = targets.model(likelihood, lambda p: 0.0, np.array([20.0]), np.zeros(2))
    long = sample(target, method=svrhmc.exact.SplitHMC(0.25, 6))
    assert long.certificate.verdict == "undecided"
    assert "stood at one point" in long.certificate.reason
    posterior = sample(target)
    assert posterior.certificate.verdict == "local"
    assert (np.abs(posterior.mean - [1.0, 2.0]) < 4 * posterior.errors[0]).all()
    assert (np.abs(posterior.sd - np.sqrt([1.0, 6.05])) < 4 * posterior.errors[1]).all()


def test_a_saddle_is_left():
    """f = ¼(x² − 1)² + ½y² started where its gradient is 0 and its Hessian indefinite."""
    target = targets.model(
        lambda p, row: -row * (0.25 * (p[0] ** 2 - 1) ** 2 + 0.5 * p[1] ** 2),
        lambda p: 0.0 * p[0],
        np.ones(1),
        np.zeros(2),
    )
    assert np.abs(target.mode()) == pytest.approx([1.0, 0.0], abs=1e-6)


BAD = {
    "nan": ({"log_likelihood": lambda p, row: jnp.log(row[1] - 2.0) * p["b"]}, r"log_likelihood\(init, row 0\) must be finite; got nan"),
    "shape": ({"log_likelihood": lambda p, row: row[0] * p["b"]}, r"must be one real number; got an array of shape \(2,\)"),
    "branch": ({"log_likelihood": lambda p, row: p["b"] if row[1] > 0 else 0.0}, "a function that JAX can trace; got a branch on a traced value"),
    "numpy": ({"log_likelihood": lambda p, row: np.exp(p["b"])}, "use jax.numpy where it uses numpy"),
    "integers": ({"init": {"w": np.zeros(2, int), "b": 0.0}}, "init: w must be floating-point numbers; got dtype int64"),
    "unequal": ({"data": (X, Y[:-1])}, r"must be arrays with the same number of rows; got 0 has 300, 1 has 299"),
    "no rows": ({"data": (X[:0], Y[:0])}, "data must be at least one row; got none"),
    "a number": ({"data": (X, 1.0)}, "an array with one entry for each row; got a single number"),
    "texts": ({"data": (X, Y.astype(str))}, "an array of numbers of up to 64 bits.*; got dtype <U"),
    "prior": ({"log_prior": lambda p: p["w"]}, r"log_prior\(params\) must be one real number"),
    "infinite prior": ({"log_prior": lambda p: jnp.log(p["b"])}, r"log_prior\(init\) must be finite; got -inf"),
    "not callable": ({"log_prior": 3}, "log_prior must be a function; got 3"),
    "key": ({"log_prior": lambda p: p["c"]}, "a function that runs on `init` and on rows of `data`; got KeyError"),
    "stopped": ({"log_likelihood": lambda p, row: jax.lax.stop_gradient(jnp.sin(1 + p["b"])) * row[0][0] ** 2}, "the gradient at init must be"),
    "scaled": ({"log_likelihood": lambda p, rows: jnp.sum(jax.vmap(log_likelihood, (None, 0))(p, rows)) * 300 / len(rows[1]), "batched": True}, "log_likelihood must be a sum over rows"),
    "a mean": ({"log_likelihood": lambda p, rows: jnp.mean(jax.vmap(log_likelihood, (None, 0))(p, rows)), "batched": True}, "log_likelihood must be a sum over rows"),
    "centred": ({"log_likelihood": lambda p, rows: -0.5 * (rows[1] - (rows[0] - rows[0].mean(axis=0)) @ p["w"]) ** 2, "batched": True}, "log_likelihood must be a sum over rows"),
    "all rows": ({"log_likelihood": lambda p, row: -0.5 * jnp.sum((Y - X @ p["w"]) ** 2)}, "a function of its row; got the same number for rows that differ"),
    "a loop": ({"log_likelihood": lambda p, row: jax.lax.while_loop(lambda t: t < 5.0, lambda t: t + p["b"] ** 2 + 1.0, row[1])}, "a function that JAX can differentiate; got ValueError"),
    "an empty array": ({"init": np.zeros(0)}, "init must be a pytree with at least one number"),
    "a list": ({"data": (X, Y.tolist())}, r"given as np.array\(list\)"),
    "a whole number": ({"log_prior": lambda p: 0}, "write 0.0 and not 0"),
    "nothing to report": ({"constrain": lambda p: None}, r"constrain\(params\) must be a dictionary of arrays; got None"),
    "dtype": ({"dtype": "float16"}, "dtype must be one of 'float64', 'float32'; got 'float16'"),
    "device": ({"devices": "tpu"}, "there is no such device here"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_models_are_refused_at_the_door(name):
    given, message = BAD[name]
    settings = {
        "log_likelihood": log_likelihood,
        "log_prior": log_prior,
        "data": (X, Y),
        "init": {"w": np.zeros(2), "b": 0.0},
    }
    with pytest.raises(ValueError, match=message):
        targets.model(**(settings | given))


def test_rows_that_are_alike_at_init_alone_are_no_trouble():
    """At w = 0 every row of a logistic regression has log ½, in float32 too, where no other point is looked at."""
    for dtype in ("float64", "float32"):
        assert logistic(dtype=dtype).n == 300


def test_a_table_is_given_by_its_columns():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        ValueError, match=r"must be an array; got a table \(DataFrame\): give a dictionary of its columns"
    ):
        targets.model(log_likelihood, log_prior, pandas.DataFrame(X), {"w": np.zeros(2), "b": 0.0})


def test_a_derivative_that_a_branch_lets_through_is_found_before_the_draws():
    """0^p is 0 or inf beside a branch that is taken: f is finite for p < 0 and its gradient nan, a wall for HMC."""

    def likelihood(p, row):
        return -0.5 * (row - jnp.where(row > 0.0, jnp.abs(row) ** p, p)) ** 2

    rows = np.array([0.0, 0.0, 1.0, 0.5])
    target = targets.model(likelihood, lambda p: -0.5 * p**2, rows, 0.5)
    with pytest.raises(ValueError, match=r"finite wherever the log posterior is; got nan or inf at \d+ of 64 states"):
        sample(target, draws=20)


def test_a_posterior_without_end_is_refused():
    with pytest.raises(RuntimeError, match="f falls without end"):
        targets.model(lambda p, row: p * row, lambda p: 0.0 * p, np.ones(3), 0.5).mode()


def test_a_batch_of_rows_at_once_gives_the_same():
    def many(params, rows):
        t = rows[0] @ params["w"] + params["b"]
        return rows[1] * t - jnp.logaddexp(0.0, t)

    one, other = logistic(), targets.model(many, log_prior, (X, Y), {"w": np.zeros(2), "b": 0.0}, batched=True)
    x = np.array([[0.3, -0.2, 0.9]])
    assert one.gradients(x) == pytest.approx(other.gradients(x), rel=1e-12)
    assert one.component_gradients(x[0], [0, 7]) == pytest.approx(other.component_gradients(x[0], [0, 7]), rel=1e-12)
    assert one.hessian(x[0]) == pytest.approx(by_rows().hessian(x[0]), rel=1e-10)


def test_a_gradient_with_one_read_of_the_rows(monkeypatch):
    """The kernel for GPUs, interpreted: rows in tiles, and a rest."""
    from svrhmc.engines.jax import gpu
    from svrhmc.engines.jax.chains import in_jax_scope
    from svrhmc.engines.jax.placement import place_form

    A = ROWS.normal(size=(203, 16)).astype(np.float32)
    y, theta = np.where(ROWS.random(203) < 0.5, 1.0, -1.0), np.full(16, 0.1)
    kernel, rows_of_calls = gpu.gradient, []
    monkeypatch.setattr(gpu, "on_gpu", lambda: True)
    monkeypatch.setattr(gpu, "gradient", lambda of, X, *more: (rows_of_calls.append(len(X)), kernel(of, X, *more))[1])

    @in_jax_scope
    def in_jax():
        _, operations, arrays = place_form(targets.logistic(A, y).form())
        many = gpu.supports_gradient(operations, arrays["data"], 2)
        return np.asarray(operations.full_gradient(arrays, jnp.asarray(theta)[None])), many

    gradient, many = in_jax()
    slopes = -y / (1 + np.exp(y * (A @ theta)))
    assert gradient[0] == pytest.approx(slopes @ A, rel=1e-4, abs=1e-4)
    assert rows_of_calls == [192]
    assert not many


WALKED = {
    "batches": (dynamics.Overdamped(1e-3), gradients.Minibatch(11)),
    "distinct rows": (dynamics.BAOAB(1e-2, 2.0, 1.0), gradients.Minibatch(3, False)),
    "snapshots": (dynamics.Underdamped(5e-3, 2.0, 1.0), gradients.SVRG(5, 13, importance=True)),
    "the mode": (dynamics.Overdamped(1e-3), gradients.ControlVariate(4)),
}


@pytest.mark.ordinary(lambda name: name in ("distinct rows", "snapshots"))
@pytest.mark.parametrize("name", WALKED)
def test_a_kernel_of_many_steps_follows_the_reference(monkeypatch, name):
    """The kernel for GPUs, interpreted."""
    from svrhmc.engines.jax import gpu

    monkeypatch.setattr(gpu, "on_gpu", lambda: True)
    target = targets.glm(X, Y * 3, "binomial", trials=4, offset=X[:, 0] / 10)
    sampler, settings = Sampler(*WALKED[name]), {"steps": 40, "chains": 3, "seed": 8, "thin": 3}
    kernel, reference = (sampler.run(target, engine=one, **settings).draws for one in ("jax", "reference"))
    np.testing.assert_allclose(kernel, reference, rtol=1e-10, atol=1e-12)


def test_jax_is_loaded_when_it_is_used_and_left_as_it_was():
    code = """
import sys
import numpy as np
import svrhmc
svrhmc.hmc(0.1).run(svrhmc.targets.synthetic(10, 2), 5)
assert "jax" not in sys.modules
svrhmc.hmc(0.1).run(svrhmc.targets.synthetic(10, 2), 5, engine="jax")
import jax
assert jax.numpy.zeros(1).dtype == np.float32
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_jax_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(core_jax, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'svrhmc\[jax\]'"):
        logistic()
    with pytest.raises(ValueError, match="JAX is not installed"):
        svrhmc.hmc(0.1).run(targets.synthetic(10, 2), 5, engine="jax")


def test_a_gradient_that_is_not_finite_is_the_models_fault():
    target = targets.model(
        lambda p, row: -0.5 * (p - row) ** 2 + 0.0 * jnp.sqrt(1.0 - p), lambda p: 0.0 * p, np.full(5, 3.0), 0.0
    )
    with pytest.raises(ValueError, match="the gradient must be finite"):
        Sampler(dynamics.Overdamped(0.05), gradients.Full()).run(target, 200, chains=2)


def test_a_step_that_is_too_long_diverges_with_advice():
    steep = targets.model(lambda p, row: -((p - row) ** 4), lambda p: 0.0 * p, np.ones(3), 0.0)
    with pytest.raises(svrhmc.DivergenceError, match="diverged at step"):
        Sampler(dynamics.Overdamped(1e3), gradients.Full()).run(steep, 100, chains=2)


def test_whitened_functions_keep_their_law():
    """The exact sampler on the whitened model against the posterior of rows, moments by 20,000 draws."""
    model, rows = logistic(), by_rows()
    posterior = sample(rows, draws=4000, seed=9)
    draws = svrhmc.exact.SplitHMC().run(model, 2500, seed=1).draws.reshape(-1, 3)
    z = (draws.mean(axis=0) - posterior.mean) / (posterior.sd / np.sqrt(5000))
    assert np.abs(z).max() < 4.5
    assert whitened(model).identity_hessian


def test_a_model_that_states_its_rows_has_their_likelihoods_and_is_cross_validated():
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(60), rng.normal(size=60)])
    y = X @ [1.0, 2.0] + rng.normal(size=60)

    def log_likelihood(params, row):
        x, value = row
        return -0.5 * (value - x @ params["b"]) ** 2 - 0.5 * jnp.log(2 * jnp.pi)

    def log_prior(params):
        return -0.5 * (params["b"] ** 2).sum()

    start = {"b": np.zeros(2)}
    posterior = sample(targets.model(log_likelihood, log_prior, (X, y), start, log_concave=True), draws=800)
    ((first, of_rows),) = posterior.log_likelihood()
    draws = posterior.trace.draws.reshape(-1, 2)
    assert first == 0
    assert of_rows == pytest.approx(norm.logpdf(y, draws @ X.T), rel=1e-9)
    known = sample(targets.linear(X, y), draws=4000)
    assert posterior.loo().elpd == pytest.approx(known.loo().elpd, abs=0.15)
    assert posterior.waic().elpd == pytest.approx(posterior.loo().elpd, abs=0.1)
    assert svrhmc.compare(posterior, posterior).elpd_diff == pytest.approx([0, 0])
    together = targets.model(
        lambda params, row: log_likelihood(params, row).sum(), log_prior, (X[None], y[None]), start, log_concave=True
    )
    with pytest.raises(ValueError, match="the model must be a sum over rows, to have a log-likelihood of each"):
        sample(together, draws=50).loo()


def test_without_an_inverse_mass_a_model_takes_that_of_the_curvature_at_its_mode():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 2))
    y = X @ [1.0, -1.0] + rng.standard_normal(30)
    target = targets.model(
        lambda params, row: -0.5 * (row[1] - row[0] @ params["b"]) ** 2,
        lambda params: -0.5 * (params["b"] ** 2).sum(),
        (X, y),
        {"b": np.zeros(2)},
    )
    largest = np.linalg.eigvalsh(X.T @ X + np.eye(2))[-1]
    assert target.typical_curvature == pytest.approx(largest, rel=1e-9)
    given = svrhmc.svr_hmc(0.05, inverse_mass=1 / target.typical_curvature).run(target, steps=20)
    np.testing.assert_array_equal(svrhmc.svr_hmc(0.05).run(target, steps=20).draws, given.draws)
    other = svrhmc.svr_hmc(0.05, inverse_mass=2 / target.typical_curvature).run(target, steps=20)
    assert (other.draws != given.draws).any()
