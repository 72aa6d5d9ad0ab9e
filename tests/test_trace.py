import json

import numpy as np
import pytest

import svrhmc
from svrhmc import Trace, TraceFileError, gradients
from svrhmc.targets import synthetic


def write(path, **arrays):
    with path.open("wb") as file:
        np.savez(file, **arrays)


@pytest.fixture(scope="module")
def trace():
    return svrhmc.svr_hmc(0.2, batch_size=np.int64(5)).run(synthetic(20, 3), 400, chains=4, seed=12)


def test_moments_are_over_all_chains_and_draws(trace):
    flat = trace.draws.reshape(-1, 3)
    assert trace.mean() == pytest.approx(flat.mean(axis=0), rel=1e-14)
    assert trace.covariance() == pytest.approx(np.cov(flat.T), rel=1e-14)


def test_summary_is_arviz(trace):
    import arviz as az

    summary = trace.summary()
    one = np.ascontiguousarray(trace.draws[:, :, 1])
    assert summary.ess_bulk[1] == pytest.approx(float(az.ess(one)))
    assert summary.ess_tail[1] == pytest.approx(float(az.ess(one, method="tail", prob=(0.05, 0.95))))
    assert summary.r_hat[1] == pytest.approx(float(az.rhat(one)))
    assert summary.mcse[1] == pytest.approx(np.asarray(az.mcse(one)).item())
    assert summary.sd[1] == pytest.approx(one.std(ddof=1))
    lines = str(summary).splitlines()
    assert lines[0].split() == ["mean", "sd", "mcse", "ess_bulk", "ess_tail", "r_hat"]
    assert lines[2].split()[0] == "x[1]"
    assert float(lines[2].split()[1]) == pytest.approx(summary.mean[1], rel=1e-3)


def test_summary_of_one_chain_has_no_r_hat_and_of_too_few_draws_is_refused():
    target = synthetic(20, 2)
    alone = svrhmc.hmc(0.2).run(target, 100, chains=1).summary()
    assert np.isnan(alone.r_hat).all()
    assert np.isfinite(alone.ess_bulk).all()
    last = svrhmc.hmc(0.2).run(target, 10, keep="last")
    with pytest.raises(ValueError, match="a trace must be of at least 4 draws a chain for a summary; got 1"):
        last.summary()
    with pytest.raises(ValueError, match="a trace must be of at least 2 draws for a covariance; got 1"):
        svrhmc.hmc(0.2).run(target, 10, chains=1, keep="last").covariance()


def test_to_arviz_holds_the_draws(trace):
    posterior = trace.to_arviz()["posterior"]
    assert posterior["x"].dims[:2] == ("chain", "draw")
    assert (posterior["x"].values == trace.draws).all()


def test_a_missing_arviz_says_what_to_install(trace, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "arviz", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs ArviZ: pip install 'svrhmc\[arviz\]'"):
        trace.to_arviz()
    assert np.isfinite(trace.summary().ess_bulk).all()  # which needs none


def test_a_trace_prints_its_size_cost_and_sampler(trace):
    text = repr(trace)
    assert "4 chains × 400 draws × 3 coordinates" in text
    assert "seed 12" in text
    assert "SVRG(batch_size=5" in text


@pytest.mark.parametrize(
    "sampler",
    [
        svrhmc.hmc(0.1, 1.5, 0.25),
        svrhmc.sgld(np.float64(0.01), 3, replacement=False),
        svrhmc.svr_hmc(0.1, batch_size=2, epoch_length=np.int32(4), snapshot_size=7),
        svrhmc.Sampler(svrhmc.dynamics.EulerMaruyama(0.1), gradients.Minibatch(2)),
    ],
)
def test_what_is_saved_is_what_is_loaded(sampler, tmp_path):
    trace = sampler.run(synthetic(20, 3), 30, chains=[3, 9], seed=2**63, thin=3)
    trace.save(tmp_path / "run.trace")
    again = Trace.load(tmp_path / "run.trace")
    for name in ("draws", "passes", "velocity", "chains"):
        assert (getattr(again, name) == getattr(trace, name)).all()
        assert getattr(again, name).dtype == getattr(trace, name).dtype
    for name in ("gradient_evaluations", "seconds", "sampler", "seed", "engine"):
        assert getattr(again, name) == getattr(trace, name)
    assert repr(again) == repr(trace)


def test_a_sampler_that_could_not_be_loaded_again_is_not_saved(tmp_path):
    class Mine(svrhmc.dynamics.Overdamped):
        pass

    trace = svrhmc.Sampler(Mine(0.1), gradients.Full()).run(synthetic(5, 2), 3)
    with pytest.raises(
        ValueError, match=r"sampler must be made of parts declared with svrhmc\.core\.serialise\.part to be saved"
    ):
        trace.save(tmp_path / "trace")
    assert not (tmp_path / "trace").exists()


def test_every_truncation_is_refused(trace, tmp_path):
    path = tmp_path / "run.trace"
    trace.save(path)
    whole = path.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(TraceFileError, match=r"is cut short or was changed|is not a svrhmc trace"):
            Trace.load(path)


def test_a_flipped_bit_is_refused(trace, tmp_path):
    path = tmp_path / "run.trace"
    trace.save(path)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0x10
    path.write_bytes(whole)
    with pytest.raises(TraceFileError, match="is cut short or was changed"):
        Trace.load(path)


def test_foreign_files_are_refused(trace, tmp_path):
    path = tmp_path / "other"
    path.write_text("mean,sd\n1,2\n")
    with pytest.raises(TraceFileError, match="is not a svrhmc trace"):
        Trace.load(path)
    write(path, x=np.zeros(3))
    with pytest.raises(TraceFileError, match=r"is not a svrhmc trace: .*has no array settings or draws.*; it holds x"):
        Trace.load(path)
    arrays = {name: getattr(trace, name) for name in ("draws", "passes", "velocity", "chains")}
    write(path, settings=np.array([{"a": 1}], dtype=object), **arrays)
    with pytest.raises(
        TraceFileError, match=r"holds Python objects in settings\.npy; only arrays of numbers are read"
    ) as raised:
        Trace.load(path)
    assert "allow_pickle" not in str(raised.value)
    for settings, message in (
        ({"format": "other", "version": 2}, "is not a svrhmc trace"),
        ({"format": "svrhmc-trace", "version": 99}, "is not a svrhmc trace: version 99, and this svrhmc reads 2 and 3"),
    ):
        write(path, settings=np.array(json.dumps(settings)), **arrays)
        with pytest.raises(TraceFileError, match=message):
            Trace.load(path)
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "nothing")
