"""Stan's NUTS on an unconstrained matrix whose polar factor is X, through PyStan, whose wheel brings Stan's own sources.

A C++ compiler is needed. PyStan cannot go on with a chain, so each repeat warms up anew; Stan itself reports the seconds of its
warm-up and of its sampling.
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

from .chain import AbstractChain, Draws, PeerMissingError
from .target import Target

PROGRAM = """
data {
  int<lower=1> n;
  int<lower=1> p;
  matrix[n, p] f;
  matrix[n, n] b;
  vector[p] weights;
}
parameters {
  matrix[n, p] z;
}
model {
  matrix[p, p] s = crossprod(z);
  matrix[p, p] v = eigenvectors_sym(s);
  matrix[n, p] x = z * (diag_post_multiply(v, inv_sqrt(eigenvalues_sym(s))) * v');
  target += -0.5 * trace(s) + sum(f .* x) + sum(diag_post_multiply(x .* (b * x), weights));
}
"""
ELAPSED = re.compile(r"([\d.e+-]+) seconds \((Warm-up|Sampling)\)")


def polar(z: np.ndarray) -> np.ndarray:
    u, _, vt = np.linalg.svd(z, full_matrices=False)
    return u @ vt


class StanChain(AbstractChain):
    """One chain of PyStan; the program is compiled once in a process."""

    _build_seconds: float | None = None

    def __init__(self, target: Target, num_draws: int, num_warmup: int):
        import httpstan.cache
        import httpstan.models
        import stan

        n, p = target.shape
        self._data = {"n": n, "p": p, "f": target.f, "b": target.b, "weights": target.weights}
        self._build = stan.build
        self._counts = {"num_chains": 1, "num_warmup": num_warmup, "num_samples": num_draws}
        if StanChain._build_seconds is None:
            if shutil.which(os.environ.get("CXX", "g++")) is None:
                raise PeerMissingError("PyStan needs a C++ compiler")
            name = httpstan.models.calculate_model_name(PROGRAM)
            httpstan.cache.delete_model_directory(name)  # so that the time is that of compiling
            started = time.perf_counter()
            # what stan.build does, without its time limit of five minutes
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # object files go to where one is
                messages = asyncio.run(httpstan.models.build_services_extension_module(PROGRAM))
            httpstan.cache.dump_stanc_warnings("", name)
            httpstan.cache.dump_services_extension_module_compiler_output(messages, name)
            StanChain._build_seconds = time.perf_counter() - started
        self.compile_seconds = StanChain._build_seconds
        self.draw(0)

    def draw(self, seed: int) -> Draws:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # progress
            fit = self._build(PROGRAM, data=self._data, random_seed=seed + 1).sample(**self._counts)
        seconds = {}
        for line in fit.stan_outputs[0].splitlines():
            message = json.loads(line)
            if message["topic"] == "logger":
                seconds |= {
                    stage: float(value) for value, stage in ELAPSED.findall(" ".join(map(str, message["values"])))
                }
        self.warmup_seconds = seconds["Warm-up"]
        x = polar(np.moveaxis(fit["z"], -1, 0))
        return Draws(x, int(fit["n_leapfrog__"].sum()), seconds["Sampling"])
