"""Programs that XLA compiled, in files: one process compiles, others load; what is broken or foreign counts for nothing."""

import os
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from svrhmc.core import code_cache
from svrhmc.core import jax as core_jax
from svrhmc.core.storage import write_checked

KEY, PROGRAM = "jit_f-0123", b"machine code" * 10
USES = """
import sys
from jax._src import monitoring
counts = {"hits": 0, "misses": 0}
def count(event, **settings):
    for name in counts:
        counts[name] += event == f"/jax/compilation_cache/cache_{name}"
monitoring.register_event_listener(count)
import jax, jax.numpy as jnp
from svrhmc.core.jax import scope
with scope():
    assert jax.jit(lambda x: (jnp.sin(x) @ x).sum())(jnp.ones((3, 3))) > 0
inside = dict(counts)
jax.jit(lambda x: jnp.cos(x) @ x)(jnp.ones((3, 3)))
assert counts["hits"] == inside["hits"]
print(inside["hits"] > 0, inside["misses"] > 0)
"""


@pytest.fixture
def asked():
    """What the cache needs of JAX."""
    value = SimpleNamespace(value=None)
    return SimpleNamespace(CacheInterface=object, config=SimpleNamespace(compilation_cache_dir=value))


@pytest.fixture
def cache(tmp_path, asked):
    """A cache with one program, inside of what belongs to this package."""
    own = core_jax._in_scope.set(True)
    made = core_jax._cache_in(tmp_path, asked)
    made.put(KEY, PROGRAM)
    yield made
    core_jax._in_scope.reset(own)


def test_a_program_is_found_under_its_key_alone(cache, tmp_path, asked):
    assert cache.get(KEY) == core_jax._cache_in(tmp_path, asked).get(KEY) == PROGRAM
    assert cache.get("jit_f-4567") is None
    with_other = core_jax._in_scope.set(False)  # what others compile is neither kept nor found
    assert cache.get(KEY) is None
    cache.put("jit_g-89", PROGRAM)
    core_jax._in_scope.reset(with_other)
    assert cache.get("jit_g-89") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_bytes(path.read_bytes()[:50] + b"\xff" + path.read_bytes()[51:]),
        lambda path: write_checked(path, PROGRAM),  # whole, and without a key
        lambda path: write_checked(path, core_jax._key_digest("jit_f-4567") + PROGRAM),  # of another program
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.rename(path.with_suffix(".away")), path.symlink_to(path.with_suffix(".away"))),
        lambda path: path.chmod(0o666),  # anybody can have written it
    ],
)
def test_a_file_that_is_broken_or_foreign_is_as_good_as_none(cache, tmp_path, damage):
    (path,) = tmp_path.iterdir()
    damage(path)
    assert cache.get(KEY) is None
    if path.is_file() and not path.is_symlink():
        path.unlink()
        cache.put(KEY, PROGRAM)
        assert cache.get(KEY) == PROGRAM


def test_nothing_is_loaded_from_a_file_of_another_user(cache, tmp_path, monkeypatch):
    from svrhmc.core.code_cache import CodeFiles

    (path,) = tmp_path.iterdir()
    monkeypatch.setattr(code_cache, "_trusted_owners", lambda: {path.stat().st_uid})
    files = CodeFiles(tmp_path, "loop.advance", "s" * 16)  # those of numba are pickles
    files.save("key", "code")
    assert (cache.get(KEY), files.load("key")) == (PROGRAM, "code")
    monkeypatch.setattr(code_cache, "_trusted_owners", lambda: {path.stat().st_uid + 1})
    assert (cache.get(KEY), files.load("key")) == (None, None)


def test_a_program_that_jax_cannot_read_is_compiled_again(cache, tmp_path, monkeypatch):
    """Of real programs: found after JAX has forgotten them, and compiled again where a file holds something else."""
    jax, real = import_module("jax"), import_module("jax._src.compilation_cache")
    from svrhmc.core.jax import scope

    def compiled():
        jax.clear_caches()
        with scope():
            return np.asarray(jax.jit(lambda x: x @ x + 0.125)(np.eye(2)))

    compiled()  # whatever the state of JAX was
    if not core_jax._cache_installed():
        pytest.skip("JAX has another cache here")
    made, asked_for = core_jax._cache_in(tmp_path, real), []
    get = made.get
    made.get = lambda key: asked_for.append((key, get(key))) or asked_for[-1][1]
    monkeypatch.setattr(real, "_cache", made)
    expected = compiled()
    assert asked_for
    assert all(program is None for _, program in asked_for)
    asked_for.clear()
    assert (compiled() == expected).all()
    assert all(program is not None for _, program in asked_for)
    for key, _ in asked_for:
        write_checked(made._file(key), core_jax._key_digest(key) + b"no program")
    with pytest.warns(UserWarning, match="persistent compilation cache"):
        assert (compiled() == expected).all()


@pytest.mark.slow
def test_what_one_process_compiled_another_loads(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    said = [
        subprocess.run([sys.executable, "-c", USES], env=environment, capture_output=True, text=True) for _ in range(3)
    ]
    assert [each.stdout.split() for each in said] == [["False", "True"], ["True", "False"], ["True", "False"]], said
    for path in tmp_path.glob("xla-*/*"):
        path.write_bytes(path.read_bytes()[:100])
    again = subprocess.run([sys.executable, "-c", USES], env=environment, capture_output=True, text=True)
    assert again.stdout.split() == ["False", "True"], again.stderr
