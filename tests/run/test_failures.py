"""What errors about non-finite values say of their cause."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import geodax as gx
from geodax import nn, vi
from geodax.data.minibatches import Stream
from geodax.run.errors import NonFiniteError, StartError

NUM, SIZE = 60, 5
START = {"w": jnp.zeros((2, 2), jnp.float32), "b": jnp.zeros(2, jnp.float32)}
X = np.random.default_rng(3).normal(size=(NUM, 2)).astype(np.float32)
LABELS = (X[:, 0] > 0.3).astype(np.int32)
CLASSES = nn.CategoricalLikelihood(lambda p, x: x @ p["w"] + p["b"][None])
COUNTS = nn.PoissonLikelihood(apply=lambda p, x: (x @ p["w"])[:, 0] + p["b"][0])
OF_DATA = "usual cause is the data: labels must be from 0 to the number of outputs minus one, counts whole"
AT_START = r"not finite even at the start, with the batch of that (iteration|step), so no smaller step would help\. "


def changed(values, row, value):
    values = np.array(values)
    values[row] = value
    return values


WRONG = {
    "labels from 1": (CLASSES, (X, LABELS + 1), OF_DATA),
    "labels -1 and 1": (CLASSES, (X, 2 * LABELS - 1), OF_DATA),
    "one negative count": (COUNTS, (X, changed(LABELS, 31, -1)), OF_DATA),
    "one fraction": (COUNTS, (X, changed(LABELS.astype(np.float32), 31, 0.5)), OF_DATA),
    "NaN": (CLASSES, (changed(X, 31, np.nan), LABELS), r"NaN or infinity in 1 of 60 examples \(0\), first in 31"),
}


def posterior(log_likelihood):
    def log_prior(position):
        return -0.5 * (jnp.sum(position["w"] ** 2) + jnp.sum(position["b"] ** 2))

    return gx.Posterior(log_prior=log_prior, log_likelihood=log_likelihood, num_data=NUM)


def run(key, algorithm, data, position=START, **settings):
    settings = {"num_samples": 200, "num_warmup": 20, "num_chains": 2, "progress": False} | settings
    batches = data if isinstance(data, Stream) else gx.data.batches(data, batch_size=SIZE)
    return gx.sample(key, algorithm, position, batches=batches, **settings)


@pytest.mark.parametrize("name", WRONG)
class TestData:
    """Data for which the likelihood is nowhere finite: the step size is not the cause, whoever has chosen it."""

    @pytest.mark.thorough
    @pytest.mark.parametrize("make", [gx.sghmc, lambda p: gx.sgrld(p, step_size=1e-4)], ids=["sghmc", "sgrld"])
    def test_samplers(self, key, name, make):
        likelihood, data, words = WRONG[name]
        with pytest.raises(NonFiniteError, match="^sample: chain .*" + AT_START + ".*" + words) as caught:
            run(key, make(posterior(likelihood)), data)
        assert "third of" not in str(caught.value)

    @pytest.mark.thorough
    def test_ensembles(self, key, name):
        likelihood, data, words = WRONG[name]
        settings = {"num_steps": 100, "num_members": 2, "progress": False}
        with pytest.raises(NonFiniteError, match="^train_ensemble: chain .*" + AT_START + ".*" + words) as caught:
            gx.train_ensemble(
                key,
                posterior(likelihood),
                lambda key: START,
                batches=gx.data.batches(data, batch_size=SIZE),
                **settings,
            )
        assert "third of" not in str(caught.value)

    @pytest.mark.thorough
    def test_fits(self, key, name):
        likelihood, data, words = WRONG[name]
        settings = {"num_steps": 200, "batch_size": SIZE, "progress": False}
        with pytest.raises(NonFiniteError, match="^vi.fit: .*" + AT_START + ".*" + words) as caught:
            vi.fit(key, vi.GaussianOver(START), likelihood, data, **settings)
        assert "third of" not in str(caught.value)

    def test_exact_samplers(self, key, name):
        likelihood, data, _ = WRONG[name]
        with pytest.raises(StartError, match=r"If there is none, look at the data: NaN, or values.*labels from 1\.$"):
            gx.sample(
                key,
                gx.nuts(posterior(likelihood).full(jax.tree.map(jnp.asarray, data))),
                START,
                num_samples=1,
                num_warmup=1,
            )


class TestBatches:
    """Catches an explanation that looks at other examples than the iteration that failed."""

    @pytest.mark.thorough
    def test_each_of_several_in_an_iteration(self, key):
        algorithm = gx.sghmc(posterior(COUNTS), num_inner_steps=7)
        with pytest.raises(NonFiniteError, match=AT_START):
            run(key, algorithm, WRONG["one negative count"][1])

    @pytest.mark.thorough
    def test_a_stream(self, key):
        def start(number):
            while True:
                yield X[:SIZE], LABELS[:SIZE] - (number == 17)
                number += 1

        with pytest.raises(NonFiniteError, match="at iteration 17 of .*" + AT_START):
            run(key, gx.sghmc(posterior(CLASSES)), gx.data.stream(start))

    def test_stacked_positions(self, key):
        """Catches another chain's initial position, and arrays that the run has given away."""

        def log_likelihood(position, batch):
            return jnp.log(position["b"][0]) * jnp.ones(SIZE, jnp.float32) - jnp.sum(position["w"] ** 2)

        position = {"w": jnp.zeros((2, 2, 2), jnp.float32), "b": jnp.asarray([[1.0, 1.0], [-1.0, 1.0]], jnp.float32)}
        with pytest.raises(NonFiniteError, match="chain 1 .*" + AT_START):
            run(key, gx.sgrld(posterior(log_likelihood), step_size=1e-6), (X, LABELS), position, stacked=True)

    def test_no_batches(self, key):
        algorithm = gx.sghmc(lambda x: jnp.log(x[0]) - x[0], step_size=1e-3)
        with pytest.raises(NonFiniteError, match=r"not finite even at the start, so no smaller step would help\. "):
            gx.sample(key, algorithm, -jnp.ones(1), num_samples=5, num_chains=1, progress=False)


class TestSteps:
    """Sound data: what was chosen, or found, was too large."""

    @staticmethod
    def quartic(position, batch):
        return -jnp.sum((position["w"] - 1.0) ** 4) * jnp.ones(len(batch[1]), jnp.float32)

    def test_a_given_step_size(self, key):
        with pytest.raises(NonFiniteError, match=r"usual cause is a step size .*\(try a third of it\)") as caught:
            run(key, gx.sghmc(posterior(self.quartic), step_size=1.0), (X, LABELS))
        assert "start" not in str(caught.value)
        assert "standardised" not in str(caught.value)

    def test_data_that_are_not_standardised(self, key):
        with pytest.raises(NonFiniteError, match=r"\(0\) have the root mean square .* standardised inputs and targets"):
            run(key, gx.sghmc(posterior(self.quartic), step_size=1.0), (1000 * X, LABELS))

    @pytest.mark.thorough
    def test_a_step_size_that_warmup_found(self, key):
        """After warm-up the curvature is far above that for which the step size was found."""

        def start(number):
            while True:
                yield X[:SIZE], np.full(SIZE, 1 if number < 20 else 10**6, np.float32)
                number += 1

        def steep(position, batch):
            return -0.5 * batch[1] * jnp.sum(position["w"] ** 2)

        with pytest.raises(NonFiniteError, match=r"give a smaller step_size") as caught:
            run(key, gx.sghmc(posterior(steep)), gx.data.stream(start))
        assert "third of" not in str(caught.value)

    @pytest.mark.thorough
    def test_learning_rates(self, key):
        batches, words = gx.data.batches((X, LABELS), batch_size=SIZE), r"learning rate .*\(try a third of it\)"
        with pytest.raises(NonFiniteError, match=words) as caught:
            gx.train_ensemble(
                key,
                posterior(self.quartic),
                START,
                batches=batches,
                num_steps=100,
                optimizer=optax.sgd(1e9),
                progress=False,
            )
        assert "start" not in str(caught.value)
        with pytest.raises(NonFiniteError, match=words) as caught:
            vi.fit(key, vi.GaussianOver(START), CLASSES, (X, LABELS), num_steps=50, learning_rate=1e9, progress=False)
        assert "start" not in str(caught.value)
