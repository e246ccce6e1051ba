"""An inference of one's own."""

import jax
import numpy as np

from geodax._tree import leaf_names
from geodax.models.mlp import INFERENCES, AbstractInference
from geodax.run.draws import to_datatree


class Prior(AbstractInference):
    """Five draws from the prior, so that tests of predictions need no sampler."""

    @classmethod
    def from_settings(cls, settings):
        return cls()

    def check(self, problem):
        pass

    def form(self, problem):
        return INFERENCES["mcmc"]().form(problem)

    def run(self, rng_key, problem, data, *, folder, devices, progress):
        like = problem.build(rng_key)
        draws = jax.vmap(problem.priors.sample, (0, None))(jax.random.split(jax.random.clone(rng_key), 5), like)
        arrays = {n: np.asarray(a)[None] for n, a in zip(leaf_names(like), jax.tree.leaves(draws), strict=True)}
        return to_datatree({"posterior": arrays, "sample_stats": {"potential": np.zeros((1, 5))}})
