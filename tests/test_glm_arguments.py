"""What `glm` refuses before any work, what it takes, and that targets made by different doors are the same."""

from decimal import Decimal

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from svrhmc import theory
from svrhmc.density import mode, recession
from svrhmc.density import propriety as proper
from svrhmc.targets import conjugate, families, glm, linear, logistic
from svrhmc.targets.losses import Loss
from svrhmc.targets.priors import Flat, Laplace, Normal, StudentT

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(300), RNG.normal(size=(300, 2))])
GROUP = np.column_stack([np.ones(300), X[:, 1], np.arange(300) < 5])  # the last column marks five rows
COUNTS = RNG.poisson(1.0, 300)
COIN = RNG.random(300) < 0.5
ONE = np.ones((4, 1))
SEPARABLE = "the posterior is improper and has no mode: the data are separable"
FLAT = {"prior": Flat(), "shared_prior": Flat()}


@pytest.fixture(autouse=True)
def no_search(monkeypatch):
    """A door is no door if it looks for the mode."""

    def refused(self, tolerance=0.0):
        raise AssertionError("the mode was looked for")

    monkeypatch.setattr(mode.ModeSearch, "find", refused)


IMPROPER = {
    "classes": (lambda: logistic(X, X @ [0.3, 1.0, -1.0] > 0, 0.0), SEPARABLE),
    "classes by probit": (lambda: glm(X, X[:, 1] > 0, families.bernoulli("probit"), prior=Flat()), "(that of columns 0, 1"),
    "one class": (lambda: logistic(X, np.ones(300), 0.0), SEPARABLE),
    "a group of one class": (lambda: logistic(GROUP, COIN | (GROUP[:, 2] > 0), 0.0), "separates them (that of column 2)"),
    "a group of one class, sparse": (
        lambda: logistic(scipy.sparse.csr_matrix(GROUP), COIN | (GROUP[:, 2] > 0), 0.0), "(that of column 2)"
    ),
    "trials": (lambda: glm(X, np.where(X[:, 1] > 0, 7, 0), "binomial", trials=7, prior=Flat()), SEPARABLE),
    "rows of weight 0 say nothing": (
        lambda: glm(GROUP, COIN, weights=np.where((GROUP[:, 2] > 0) & COIN, 0, 2), prior=Flat()), "(that of column 2)"
    ),
    "three classes": (lambda: glm(X, np.digitize(X[:, 1], [-0.5, 0.5]), "categorical", prior=Flat()), SEPARABLE),
    "one of three classes": (
        lambda: glm(X, np.where(X[:, 1] > 0.5, 2, COIN), "categorical", prior=Flat()), SEPARABLE
    ),
    "no event": (lambda: glm(X, np.zeros(300), "poisson", prior=Flat()), SEPARABLE),
    "no event in a group": (lambda: glm(GROUP, np.where(GROUP[:, 2] > 0, 0, COUNTS), "poisson", prior=Flat()), "column 2"),
    "no event in a group, overdispersed": (
        lambda: glm(GROUP, np.where(GROUP[:, 2] > 0, 0, COUNTS), "negative-binomial", prior=Flat()), "column 2"
    ),
    "a constant beside an intercept": (
        lambda: logistic(np.column_stack([X, np.full(300, 3.0)]), COIN, 0.0),
        "linearly dependent; got 0 for columns 0, 3, which are: column 3 is 3 times column 0, so the posterior is improper",
    ),
    "collinear columns": (
        lambda: glm(np.column_stack([X, X[:, 1] - 2 * X[:, 2]]), COUNTS, "poisson", prior=Flat()),
        "got 0 for columns 1, 2, 3, which are: column 3 is a combination of the others",
    ),
    "collinear columns of linear regression": (lambda: linear(np.column_stack([X, X[:, 1]]), COUNTS, 1.0, 0.0), "columns 1, 3"),
    "a column of zeros": (lambda: logistic(X * [1, 0, 1], COIN, 0.0), "got 0 for column 1, which is: it is all zeros"),
    "fewer rows than columns": (lambda: glm(X[:2], [1.0, 2.0], "gaussian", prior=Flat()), "linearly dependent"),
    "as many rows as columns": (lambda: glm(X[:3], COUNTS[:3] ** 2.0, "gaussian", **FLAT), "labels that leave residuals"),
    "less weight than columns": (
        lambda: glm(X, COUNTS, "gaussian", weights=np.full(300, 0.01), **FLAT), "rows of weight 3 in all leave nothing over"
    ),
    "no residual": (lambda: glm(X, 2 + X[:, 1], "gaussian", shared_prior=Flat()), "y must be labels that leave residuals for the family 'gaussian'"),
    "no residual beside an offset": (lambda: glm(X, 2 + X[:, 1] ** 2, "student-t", offset=X[:, 1] ** 2), "that leave residuals"),
    "no residual in logs": (lambda: glm(X, np.exp(X[:, 1]), "gamma"), "leave residuals for the family 'gamma'"),
    "a shape without a prior": (
        lambda: glm(X, COUNTS, "negative-binomial", shared_prior=Flat()),
        "shared_prior must be one with which the parameter that rows of the family 'negative-binomial' share has a posterior",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", IMPROPER)
def test_a_posterior_without_a_density_is_refused_at_construction(kind):
    make, message = IMPROPER[kind]
    with pytest.raises(ValueError, match=r"improper|residual|posterior") as caught:
        make()
    assert message in str(caught.value)


PROPER = {
    "overlapping classes": lambda: logistic(X, COIN, 0.0),
    "a prior on the group": lambda: glm(GROUP, COIN | (GROUP[:, 2] > 0), prior=[Flat(), Flat(), Normal(0.1)]),
    "a heavy prior on the group": lambda: glm(GROUP, COIN | (GROUP[:, 2] > 0), prior=[Flat(), Flat(), StudentT()]),
    "a Laplace prior": lambda: glm(X, X[:, 1] > 0, prior=Laplace()),
    "one event in a group": lambda: glm(GROUP, np.where(np.arange(300) == 3, 1, COUNTS * (GROUP[:, 2] == 0)), "poisson", prior=Flat()),
    "one row against": lambda: logistic(X, (X[:, 1] > 0) ^ (np.abs(X[:, 1]) == np.abs(X[:, 1]).max()), 0.0),
    "four classes": lambda: glm(X, RNG.integers(0, 4, 300), "categorical", prior=Flat()),
    "measurements": lambda: glm(X, X[:, 1] + RNG.normal(size=300), "gaussian", **FLAT),
    "measurements with tails": lambda: glm(X, RNG.normal(size=300), "student-t", **FLAT),
    "positive measurements": lambda: glm(X, RNG.gamma(2.0, size=300), "gamma", **FLAT),
    "overdispersed counts": lambda: glm(X, COUNTS, "negative-binomial", prior=Flat()),
    "two points and a line": lambda: glm(X[:2, :2], [1.0, 2.0], "gaussian"),
    "one row": lambda: glm([[1.0]], [3.0], "gaussian"),
    "a conjugate prior": lambda: conjugate(X, np.full(300, 2.0)),
    "all counts 0": lambda: glm(X, np.zeros(300), "poisson"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PROPER)
def test_a_posterior_with_a_density_is_not(kind, monkeypatch):
    """The negative control of the test above: there is a mode, and any step away from it has less density."""
    target = PROPER[kind]()
    monkeypatch.undo()  # the search may begin
    mode = target.mode()
    steps = np.random.default_rng(0).normal(size=(20, target.dim))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    assert min(target.potential(mode + step) for step in steps) > target.potential(mode)


def allows(rows, y, kind):
    """The same question by another programme: is there a d with one row clear of 0, and none against it?"""
    n, p = rows.shape
    signs = np.where(y > 0, -1.0, 1.0) if kind == "bernoulli" else np.ones(n)
    equal = (y > 0) if kind == "poisson" else np.zeros(n, bool)
    C = signs[:, None] * rows
    for i in np.flatnonzero(~equal):
        bounds, total = (None, None), C[~equal]
        found = scipy.optimize.linprog(
            np.zeros(p), total, np.zeros(len(total)) - (np.flatnonzero(~equal) == i), C[equal] if equal.any() else None,
            np.zeros(equal.sum()) if equal.any() else None, bounds,
        )  # fmt: skip
        if found.status == 0:
            return True
    return False


def refused(rows, y, kind):
    try:
        glm(rows, y, kind, prior=Flat())
    except ValueError as error:
        return "separable" in str(error)
    return False


@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_the_verdict_is_that_of_an_independent_programme(kind):
    """Small whole numbers, so that many rows lie in the plane that separates the others."""
    rng, seen = np.random.default_rng(1), set()
    for _ in range(60):
        rows = np.column_stack([np.ones(9), rng.integers(-1, 2, (9, 2))])
        y = (rng.random(9) < 0.4).astype(float)
        if np.linalg.matrix_rank(rows) < 3:
            continue
        expected = allows(rows, y, kind)
        found = refused(rows, y, kind)
        assert found == expected
        seen.add(found)
    assert seen == {True, False}


def test_many_rows_are_decided_by_a_few(monkeypatch):
    """All rows are never looked at where some overlap, and rare events are among those some."""
    rng = np.random.default_rng(2)
    many = np.column_stack([np.ones(50_000), rng.normal(size=(50_000, 3))])
    rare = np.zeros(50_000)
    rare[rng.choice(50_000, 30, replace=False)] = 1

    def refused(self):
        raise AssertionError("all rows were looked at")

    with monkeypatch.context() as patch:
        patch.setattr(proper._RecessionCone, "_pieces", refused)
        patch.setattr(proper._RecessionCone, "_require_rank", refused)
        for y in (rng.random(50_000) < 0.3, rare):
            logistic(many, y, 0.0)
        glm(many, rare, "poisson", prior=Flat())
        glm(many, rng.integers(0, 3, 50_000), "categorical", prior=Flat())
        with pytest.raises(AssertionError, match="all rows were looked at"):
            logistic(many, many[:, 1] > 0, 0.0)
    with pytest.raises(ValueError, match=r"separates them \(that of columns"):
        logistic(many, many[:, 1] > 0, 0.0)
    nearly = many[:, 1] > 0
    nearly[np.argsort(np.abs(many[:, 1]))[:6]] ^= True  # a few rows by the plane are of the other class
    logistic(many, nearly, 0.0)


def test_levels_that_few_rows_have():
    """60 levels, most of them in a handful of rows that the first try does not draw."""
    rng = np.random.default_rng(3)
    n, levels = 20_000, 60
    level = np.where(np.arange(n) < 6 * levels, np.arange(n) % levels, 0)
    rows = scipy.sparse.csr_matrix((np.ones(n), (np.arange(n), level)), shape=(n, levels))
    y = rng.random(n) < 0.5
    y[: 6 * levels] = np.arange(6 * levels) // levels % 2
    logistic(rows, y, 0.0)
    y[level == 41] = True
    with pytest.raises(ValueError, match=r"\(that of column 41\)"):
        logistic(rows, y, 0.0)


class Unknown(Loss):
    """A loss that does not say where it is bounded."""

    def value(self, t, y):
        return np.logaddexp(0.0, -(2 * y - 1) * t)

    def slope(self, t, y):
        return np.zeros(np.shape(t))

    def curvature(self, t, y):
        return np.zeros(np.shape(t))

    def mean(self, t):
        return t


def test_what_a_loss_does_not_say_is_not_guessed():
    assert not glm(X, X[:, 1] > 0, Unknown(), prior=Flat()).determined
    with pytest.raises(ValueError, match="it is all zeros"):
        glm(X * [1, 0, 1], COIN, Unknown(), prior=Flat())


def test_faces_are_what_the_losses_do():
    """Far out along a face's inner side the loss stays where it was, and beyond the face it grows."""
    for loss, labels in (
        (families.bernoulli(), [-1.0, 1.0]), (families.bernoulli("probit"), [-1.0, 1.0]),
        (families.binomial(), [0.0, 0.3, 1.0]), (families.poisson(), [0.0, 2.0]), (families.gaussian(2.0), [0.7]),
        (families.gaussian(), [0.7]), (families.student_t(), [0.7]), (families.negative_binomial(), [0.0, 2.0]),
        (families.gamma(), [0.7]), (families.categorical(3), [0.0, 1.0, 2.0]),
    ):  # fmt: skip
        y = np.array(labels)
        known = loss.recession_cones(y)
        k = loss.blocks
        for way in np.random.default_rng(4).normal(size=(20, k)):
            way = way / np.abs(way).max()
            along = np.einsum("nrc,c->nr", known.normals, way)
            inside = np.where(known.both, along == 0, along <= 0).all(axis=1)
            t = [
                np.append(s * way, np.zeros(loss.shared)) if loss.predictor_shape else s * way[0]
                for s in (0.0, 20.0, 200.0)
            ]
            near, far, further = (loss.value(np.broadcast_to(at, (len(y), *np.shape(at))), y) for at in t)
            grows = further > far + 1e-6
            assert (grows == ~inside).all(), (loss, labels, way)
            assert np.isfinite(near).all()


def test_the_search_knows_what_it_has_shown():
    """A direction given back is allowed by every row; where overlap is claimed, no programme finds a direction."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        rows = recession.FacedRows.of(
            rng.integers(-2, 3, (12, 3)).astype(float),
            families.bernoulli().recession_cones(rng.choice([-1.0, 1.0], 12)),
        )
        if rows.null_directions().shape[1]:
            continue
        found = rows.search()
        if found.direction is not None:
            assert rows.products(found.direction[:, None]).max() < 0
        if found.overlap:
            assert rows.find_allowed_direction().shape[1] == 0


# What is taken at the door.


def test_doors_to_the_same_target():
    y = RNG.normal(size=300)
    assert logistic(X, COIN, 2.0, 0.5).identity() == glm(X, COIN, prior=Normal(2.0, mean=0.5)).identity()
    one, two, three = linear(X, y, 0.3), glm(X, y, "gaussian", noise_variance=0.3), glm(X, y, families.gaussian(0.3))
    assert one.identity() == two.identity() == three.identity()
    assert np.array_equal(one.mode(), two.mode())
    assert one.identity() != linear(X, y, 0.31).identity()


TYPES = {
    "float16": lambda a: a.astype(np.float16),
    "Fortran order": np.asfortranarray,
    "not contiguous": lambda a: np.repeat(np.repeat(a, 2, axis=0), 2, axis=1)[::2, ::2],
    "backwards": lambda a: a[::-1][::-1],
    "big endian": lambda a: a.astype(">f8"),
    "lists": lambda a: a.tolist(),
    "Decimals": lambda a: np.array([[Decimal(v) for v in row] for row in a.tolist()]),
    "integers": lambda a: a.astype(np.int8),
}


@pytest.mark.parametrize("kind", TYPES)
def test_the_same_numbers_are_the_same_rows_however_they_lie(kind):
    whole = np.round(2 * X)
    want = logistic(whole, COIN).gradient(np.ones(3))
    assert np.allclose(logistic(TYPES[kind](whole), COIN).gradient(np.ones(3)), want, rtol=1e-12)


def test_rows_that_may_not_be_written_to_or_lie_in_a_file(tmp_path):
    fixed = X.copy()
    fixed.setflags(write=False)
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for rows in (fixed, mapped):
        assert np.array_equal(
            glm(rows, COUNTS, "poisson", prior=Flat()).gradient(X[0]), poisson(prior=Flat()).gradient(X[0])
        )


def poisson(y=COUNTS, **more):
    return glm(X, y, "poisson", **more)


def test_labels_however_they_come():
    pandas = pytest.importorskip("pandas")
    at = np.full(3, 0.3)
    for y in (
        pandas.Series(COUNTS, index=np.arange(300)[::-1]), pandas.Series(COUNTS, dtype="Int64"), COUNTS.astype(object),
        [Decimal(int(c)) for c in COUNTS], COUNTS.astype(np.uint8), COUNTS.astype(np.float32),
    ):  # fmt: skip
        assert np.array_equal(poisson(y).gradient(at), poisson().gradient(at))
    weighed = [poisson(weights=w).gradient(at) for w in (COUNTS + 1, (COUNTS + 1.0), pandas.Series(COUNTS + 1))]
    assert np.array_equal(weighed[0], weighed[1])
    assert np.array_equal(weighed[0], weighed[2])
    with pytest.raises(ValueError, match="y must be an array of numbers; got None at row 1"):
        glm(ONE, [1, None, 2, 3], "poisson")


def test_classes_of_any_kind():
    pandas = pytest.importorskip("pandas")
    names = np.array(["ash", "birch", "cedar"])
    codes = RNG.integers(0, 3, 300)
    want = glm(X, codes, "categorical")
    assert want.classes.tolist() == [0, 1, 2]
    for y, classes in (
        (names[codes], names), (names[codes].astype(object), names), (pandas.Series(names[codes]), names),
        (pandas.Categorical(names[codes]), names), (np.array([-3, 5, 8])[codes], [-3, 5, 8]),
        (np.array([-3.0, 5.0, 8.0])[codes], [-3, 5, 8]), (names[codes].astype("S"), [b"ash", b"birch", b"cedar"]),
    ):  # fmt: skip
        target = glm(X, y, "categorical")
        assert target.classes.tolist() == list(classes)
        assert target.identity() == want.identity()
    assert glm(X, COIN, "categorical").classes.tolist() == [False, True]
    for family in ("bernoulli", families.bernoulli("probit")):
        target = glm(X, np.where(COIN, "yes", "no"), family)
        assert target.classes.tolist() == ["no", "yes"]
        assert target.identity() == glm(X, COIN, family).identity()
    assert glm(X, COIN).classes is None


WRONG = {
    "a gap": (lambda: glm(ONE, [0, 1, 3, 0], families.categorical(4)), "every class is seen; got none of class 2"),
    "one class": (lambda: glm(ONE, ["a"] * 4, "categorical"), "labels of at least two classes; got 'a' everywhere"),
    "a missing label": (lambda: glm(ONE, ["a", None, "b", "a"], "categorical"), "a label in every row; got None at row 1"),
    "no number": (lambda: glm(ONE, [0, np.nan, 1, 2], "categorical"), "a label in every row; got nan at row 1"),
    "texts and numbers": (lambda: glm(ONE, np.array(["a", 1, "b", 2], object), "categorical"), "one kind, which have an order; got int and str"),
    "labels in a table": (lambda: glm(ONE, [["a"], ["b"], ["a"], ["b"]], "categorical"), "one label for each row; got shape (4, 1)"),
    "too few labels": (lambda: glm(ONE, ["a", "b"], "categorical"), "y must be an array of shape (4,); got shape (2,)"),
    "three texts": (lambda: glm(ONE, ["a", "b", "c", "a"]), "labels of two classes; got 3: 'a', 'b', 'c': for more use 'categorical'"),
    "1 and 2": (lambda: glm(ONE, [1, 2, 1, 2]), "got the values 1, 2: say which label is 1"),
    "texts for counts": (lambda: glm(ONE, ["1", "2", "3", "4"], "poisson"), "got dtype <U1"),
    "offsets of classes": (lambda: glm(ONE, [0, 1, 2, 0], "categorical", offset=np.ones((4, 2))), "classes have no offsets here"),
    "an offset that is no number": (lambda: glm(ONE, COUNTS[:4], "poisson", offset=[0, np.nan, 0, 0]), "finite everywhere; got nan at row 1"),
    "an exposure of 0": (lambda: glm(ONE, COUNTS[:4], "poisson", offset=[0, -np.inf, 0, 0]), "the log of an exposure of 0; leave such rows out"),
    "an infinite entry": (lambda: glm([[1.0], [np.inf]], [1, 2], "poisson"), "X must be finite everywhere; got inf at row 1, column 0"),
    "no columns": (lambda: glm(np.ones((4, 0)), [1, 2, 3, 4], "poisson"), "X must be an array of shape (n, dim); got shape (4, 0)"),
    "no rows": (lambda: glm(np.ones((0, 2)), [], "poisson"), "X must be an array of shape (n, dim); got shape (0, 2)"),
    "noise of counts": (lambda: glm(ONE, COUNTS[:4], "poisson", noise_variance=2.0), "noise_variance must be None for PoissonLoss(); got 2.0"),
    "noise twice": (lambda: glm(ONE, COUNTS[:4], families.gaussian(1.0), noise_variance=2.0), "noise_variance must be None"),
    "noise below 0": (lambda: glm(ONE, COUNTS[:4], "gaussian", noise_variance=-1.0), "noise_variance must be a positive number; got -1.0"),
    "a plan without a bound": (lambda: theory.plan(poisson(), accuracy=0.1), "use svrhmc.sample(target), which needs none"),
    "a family in capitals, misspelt": (lambda: glm(ONE, COUNTS[:4], "Gausian"), "did you mean 'gaussian'?"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_does_not_fit_is_refused_with_what_to_do(kind):
    make, message = WRONG[kind]
    with pytest.raises(ValueError, match="must be") as caught:
        make()
    assert message in str(caught.value)


def test_a_table_has_the_posterior_of_its_rows(monkeypatch):
    """Sums over a table and over its rows are rounded differently, so that bits may differ: by some units in the last
    place, far below the tolerance of the search, and in exact laws no more than the conditioning makes of them."""
    monkeypatch.undo()
    rng = np.random.default_rng(6)
    rows = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    times = rng.integers(1, 9, 40)
    long = np.repeat(rows, times, axis=0)
    for family, y in (
        ("bernoulli", rng.random(40) < 0.5),
        ("poisson", rng.poisson(2.0, 40)),
        ("categorical", np.arange(40) % 3),
    ):
        short, full = glm(rows, y, family, weights=times), glm(long, np.repeat(y, times), family)
        sd = np.sqrt(np.diag(np.linalg.inv(full.hessian(full.mode()))))
        assert (np.abs(short.mode() - full.mode()) / sd).max() < 1e-9
        assert (np.abs(short.mode() - glm(rows, y, family).mode()) / sd).max() > 0.01  # the control: weights matter
    y = rng.normal(size=40)
    for more in ({}, {"noise_variance": 0.7}):
        short = glm(rows, y, "gaussian", weights=times, **more).exact_law
        full = glm(long, np.repeat(y, times), "gaussian", **more).exact_law
        assert short.mean == pytest.approx(full.mean, rel=1e-11, abs=1e-12)
        assert short.covariance == pytest.approx(full.covariance, rel=1e-10, abs=1e-13)
