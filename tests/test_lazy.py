"""Names of the package that are imported on first access."""

import subprocess
import sys
import types

import pytest

import geodax as gx

MODULES = {"conformal", "data", "diagnostics", "distributions", "metrics", "models", "nn", "predictive", "scores"}
MODULES |= {"transforms", "vi"}


@pytest.mark.parametrize("name", gx.__all__)
def test_public_names_are_what_they_say(name):
    found = getattr(gx, name)
    assert isinstance(found, types.ModuleType) == (name in MODULES)
    assert (found.__name__ if name in MODULES else found.__name__.split(".")[-1]).endswith(name)


@pytest.mark.parametrize(
    "name", ["align_rotation", "align_signs", "check", "invariant_draws", "mean_orthonormal", "summarize", "to_arviz"]
)
def test_diagnostics_are_in_their_package(name):
    assert getattr(gx.diagnostics, name).__name__ == name


def test_names_are_listed_before_they_are_used():
    """For completion, in a fresh process; modules of a package only where it has no other names."""
    code = """if True:
        import geodax as gx
        assert "remedies" not in dir(gx.diagnostics)
        for package in (gx, gx.diagnostics, gx.data, gx.models, gx.models.mlp, gx.vi):
            assert set(package.__all__) <= set(dir(package)), set(package.__all__) - set(dir(package))
        assert {"schedules", "sgrld", "__name__"} <= set(dir(gx.sgmcmc))
        assert gx.vi.fit.__module__ == gx.vi.Fit.__module__ == "geodax.run.fit"
    """
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_unknown_names_raise():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = gx.nonsense


@pytest.mark.thorough
def test_packages_and_their_modules_are_attributes():
    """In a fresh process, where nothing else has imported them."""
    code = "import geodax as gx; gx.sgmcmc.schedules, gx.geometry.hadamard.fwht, gx.run.errors, gx.diagnostics.rhat"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_sampling_and_the_command_line_import_no_more_than_they_use():
    """Catches networks, variational methods and SciPy's distributions, half a second, in every run."""
    code = """if True:
        import sys
        import jax
        import jax.numpy as jnp
        import geodax as gx
        from geodax.app import main
        main(["--version"])
        sampler = gx.nuts(lambda x: -jnp.sum(x**2))
        gx.sample(jax.random.key(0), sampler, jnp.ones(2), num_samples=2, num_warmup=2, progress=False)
        loaded = {"geodax.nn", "geodax.vi", "scipy.special", "sklearn", "matplotlib"} & set(sys.modules)
        assert not loaded, loaded
        assert "norm" not in vars(sys.modules["scipy.stats"])
        import geodax.app.pca.run
        loaded = {"geodax.nn", "geodax.vi", "matplotlib"} & set(sys.modules)
        assert not loaded, loaded
    """
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.thorough
def test_a_deferred_module_is_imported_by_its_first_use():
    """Catches an import of SciPy's distributions by scikit-learn, and a module that is not the real one afterwards."""
    code = """if True:
        import sys
        from geodax._lazy import defer
        defer("scipy.stats")
        import sklearn.base
        assert "scipy.stats._stats_py" not in sys.modules
        import scipy.stats
        from scipy import stats
        assert scipy.stats.norm.cdf(0.0) == stats.norm.cdf(0.0) == 0.5
        from scipy.stats import norm
        from scipy.stats._stats_py import rankdata
        defer("scipy.stats")
        assert sys.modules["scipy.stats"].norm is norm
    """
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["fit", "--help"], ["fit", "pcaa"], ["completion", "bash"]]
)
def test_commands_that_compute_nothing_start_at_once(words):
    """To the end of the process: what is imported when a command has ended counts as well."""
    command = [sys.executable, "-X", "importtime", "-m", "geodax", *words]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    imported = {line.split("|")[-1].strip() for line in process.stderr.splitlines() if line.startswith("import time:")}
    assert "geodax.app.commands.entry" in imported
    assert not imported & {"jax", "numpy", "pandas", "sklearn", "matplotlib", "xarray"}
