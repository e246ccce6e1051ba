"""Stan's NUTS on the model in Givens angles, through PyStan.

The program is of the paper's kind: angles with bounds, one rotation after the other, the covariance matrix built and solved against
the sample covariance. A second one takes the likelihood from statistics as the other samplers' second form does. PyStan cannot go on
with chains, so each repeat warms up anew; Stan reports the seconds of warm-up and sampling itself, by the clock.
"""

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import tempfile
import time

import numpy as np
from _stiefel.chain import PeerMissingError

from geodax.interop.stan import stan_functions

from .jax_samplers import Block
from .model import Problem, seen, starts

DATA = "data { int n; int p; int N; matrix[n, n] S; }"
PARAMETERS = """
parameters {
  vector<lower=givens_lower(n, p), upper=givens_upper(n, p)>[givens_size(n, p)] theta;
  vector<lower=0>[p] scale;
  real<lower=0> noise;
}
transformed parameters { matrix[n, p] w = givens_matrix(theta, n, p); }
model {
  target += givens_log_volume(theta, n, p);
  scale ~ normal(0, 5);
  noise ~ normal(0, 2);
"""
LIKELIHOODS = {
    "as written": """
  matrix[n, n] C = w * diag_matrix(square(scale)) * w' + diag_matrix(rep_vector(square(noise), n));
  target += -0.5 * N * (log_determinant(C) + trace(C \\ (S / N)));
}
""",
    "statistics": """
  vector[p] variance = square(scale) + square(noise);
  row_vector[p] along = columns_dot_product(w, S * w);
  target += -0.5 * N * (sum(log(variance)) + 2 * (n - p) * log(noise));
  target += -0.5 * (trace(S) - dot_product(square(scale) ./ variance, along)) / square(noise);
}
""",
}
ELAPSED = re.compile(r"([\d.e+-]+) seconds \((Warm-up|Sampling)\)")


class StanChains:
    """Chains of one program."""

    def __init__(self, problem: Problem, form: str, options):
        try:
            import httpstan.cache
            import httpstan.models
            import stan
        except ImportError as error:
            raise PeerMissingError("PyStan is not installed") from error
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            raise PeerMissingError("PyStan needs a C++ compiler")
        self._program = stan_functions(["givens"]) + DATA + PARAMETERS + LIKELIHOODS[form]
        x = np.asarray(problem.x)
        self._data = {"n": problem.n, "p": problem.p, "N": len(x), "S": x.T @ x}
        self._options, self._stan, self._problem = options, stan, problem
        started = time.perf_counter()
        name = httpstan.models.calculate_model_name(self._program)
        try:
            httpstan.models.import_services_extension_module(name)
        except KeyError:
            # what stan.build does, without its time limit of five minutes
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # object files go to where one is
                messages = asyncio.run(httpstan.models.build_services_extension_module(self._program))
            httpstan.cache.dump_stanc_warnings("", name)
            httpstan.cache.dump_services_extension_module_compiler_output(messages, name)
        self.compile_seconds = time.perf_counter() - started
        self.num_chains = options.chains

    def draw(self, seed: int) -> Block:
        angles = _angles(self._problem, self.num_chains)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # progress
            built = self._stan.build(self._program, data=self._data, random_seed=seed + 1)
            fits = [
                built.sample(
                    num_chains=1, num_warmup=self._options.warmup, num_samples=self._options.draws, init=[angles[c]]
                )
                for c in range(self.num_chains)
            ]
        seconds = {"Warm-up": 0.0, "Sampling": 0.0}
        for fit in fits:
            for line in fit.stan_outputs[0].splitlines():
                message = json.loads(line)
                if message["topic"] == "logger":
                    for value, stage in ELAPSED.findall(" ".join(map(str, message["values"]))):
                        seconds[stage] += float(value)
        self.warmup_seconds = seconds["Warm-up"]
        values = np.stack([_values(fit) for fit in fits])
        gradients = sum(int(fit["n_leapfrog__"].sum()) for fit in fits)
        return Block(values, seconds["Sampling"], gradients, sum(int(fit["divergent__"].sum()) for fit in fits))


def _values(fit) -> np.ndarray:
    w, scale, noise = np.moveaxis(fit["w"], -1, 0), fit["scale"].T, fit["noise"][0]
    return np.stack(
        [
            np.asarray(seen({"w": a, "scale": b, "noise": np.asarray(c)}))
            for a, b, c in zip(w, scale, noise, strict=True)
        ]
    )


def _angles(problem: Problem, num_chains: int) -> list[dict]:
    import geodax as gx

    chart = gx.transforms.Givens(problem.n, problem.p)
    return [
        {
            "theta": np.asarray(chart.decompose(values["w"])).tolist(),
            "scale": np.asarray(values["scale"]).tolist(),
            "noise": float(values["noise"]),
        }
        for values in starts(problem, num_chains)
    ]
