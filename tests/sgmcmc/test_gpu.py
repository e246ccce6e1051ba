"""Steps can be made into programs for a GPU: what has no rule there, an error here, would be found on a user's machine."""

import jax
import jax.numpy as jnp
import pytest

import geodax as gx

SIZE = 100
METRICS = (
    gx.metrics.Identity(),
    gx.metrics.RMSProp(),
    gx.metrics.Wenzel(),
    gx.metrics.Monge(),
    gx.metrics.Monge(alpha2=1.0, gamma="full"),
    gx.metrics.Shampoo(),
    gx.metrics.Shampoo(method="newton"),
    gx.metrics.Shampoo(variant="soap"),
)
GEOMETRIES = (
    gx.Stiefel(),
    gx.Stiefel(flow="geodesic"),
    gx.Stiefel(metric="embedded"),
    gx.Stiefel(metric="embedded", flow="geodesic"),
    gx.Stiefel(metric="embedded", flow="polar"),
    gx.Sphere(),
)


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """What is chosen by the machine is chosen for a GPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def log_likelihood(network, batch):
    x, y = batch
    return jax.nn.log_softmax(jax.vmap(network)(x))[jnp.arange(len(y)), y]


def lowered(algorithm, position):
    """Three chains side by side, as on a GPU."""
    batch = (jnp.zeros((20, 50), jnp.float32), jnp.zeros(20, int))
    positions = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), position)

    def steps(keys, positions):
        states = jax.vmap(algorithm.init)(positions)
        return jax.vmap(lambda key, state: algorithm.step(key, state, batch)[0].position)(keys, states)

    keys = jax.random.split(jax.random.key(0), 3)
    return jax.jit(steps).trace(keys, positions).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "metric", METRICS, ids=lambda m: "-".join(str(v) for v in (type(m).__name__, *vars(m).values()))
)
def test_sgrld(metric, key):
    network = gx.nn.MLP(50, 4, widths=(60, 60), key=key)
    posterior = gx.Posterior(log_prior=gx.nn.Priors(), log_likelihood=log_likelihood, num_data=SIZE)
    program = lowered(gx.sgrld(posterior, metric=metric, step_size=1e-4), network)
    if isinstance(metric, gx.metrics.Shampoo):
        assert ("cusolver" in program) == (metric.method == "eigh")


@pytest.mark.thorough
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_sghmc_on_frames(geometry):
    w = jnp.eye(50, 7, dtype=jnp.float32)
    w = w[:, 0] if isinstance(geometry, gx.Sphere) else w
    posterior = gx.Posterior(
        log_prior=lambda w: 0.0,
        log_likelihood=lambda w, batch: -jnp.sum((batch[0] @ w).reshape(20, -1) ** 2, axis=1),
        num_data=SIZE,
    )
    assert lowered(gx.sghmc(posterior, manifold=geometry, step_size=1e-3, friction=0.1), w)
