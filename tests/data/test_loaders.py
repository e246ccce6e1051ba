"""Streams from loaders of other libraries, and lists that stand where an array is expected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.sgmcmc.control_variates import control_variates

X = np.arange(24, dtype=np.float32).reshape(12, 2)
Y = np.arange(12, dtype=np.int32)


class Counted:
    """A loader of four batches of three, which knows its length and counts the batches that it has made."""

    def __init__(self, number=0):
        self.number, self.made = number, 0

    def __len__(self):
        return 4

    def __iter__(self):
        order = np.random.default_rng(self.number).permutation(12)
        for rows in order.reshape(4, 3):
            self.made += 1
            yield X[rows], Y[rows]


def of_torch():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    data = torch.utils.data.TensorDataset(torch.asarray(X), torch.asarray(Y))
    return torch.utils.data.DataLoader(data, batch_size=3)


def of_tensorflow():
    tf = pytest.importorskip("tensorflow", reason="needs TensorFlow")
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(3)


def of_grain():
    grain = pytest.importorskip("grain", reason="needs Grain")
    return grain.MapDataset.source(list(zip(X, Y, strict=True))).to_iter_dataset().batch(3)


def of_datasets():
    datasets = pytest.importorskip("datasets", reason="needs Hugging Face datasets")
    table = datasets.Dataset.from_dict({"x": X, "y": Y}).with_format("numpy")
    return lambda number: table.iter(batch_size=3)


def test_batches_of_one_memory_stay_apart():
    """A loader that writes each batch over the last one; several are read ahead for a chunk."""

    class Reused:
        def __iter__(self):
            batch = np.empty((3, 2), np.float32), np.empty(3, np.int32)
            for rows in np.arange(12).reshape(4, 3):
                batch[0][:], batch[1][:] = X[rows], Y[rows]
                yield batch

    x, y = jax.tree.leaves(gx.data.from_loader(Reused()).read(1, 6))
    expected = np.resize(np.arange(12).reshape(4, 3), (7, 3))[1:]
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(x, X[expected])


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("make", [Counted, of_torch, of_tensorflow, of_grain, of_datasets])
def test_passes_follow_each_other_and_resume_where_they_were(make):
    """Catches batches skipped or repeated at the end of a pass and after a resume, and tensors that are no arrays."""
    loader = make()
    stream = gx.data.from_loader(loader)
    x, y = jax.tree.leaves(stream.read(0, 10))
    order = np.random.default_rng(0).permutation(12) if make is Counted else np.arange(12)
    expected = np.resize(order.reshape(4, 3), (10, 3))
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(x, X[expected])
    np.testing.assert_array_equal(jax.tree.leaves(gx.data.from_loader(loader).read(7, 3))[1], expected[7:])


def test_seeded_passes_before_the_first_batch_are_not_read():
    """Catches an order that does not depend on the pass, and a resumed run that reads everything before its batch."""
    loaders = {}

    def passes(number):
        return loaders.setdefault(number, Counted(number))

    read = gx.data.from_loader(passes).read(9, 2)[1]
    order = np.random.default_rng(2).permutation(12).reshape(4, 3)
    np.testing.assert_array_equal(read, order[1:3])
    assert [loader.made for loader in loaders.values()] == [0, 0, 3]


def test_what_is_no_loader_is_refused():
    with pytest.raises(ValueError, match="found an iterator, which ends after one pass"):
        gx.data.from_loader(iter(Counted()))
    with pytest.raises(TypeError, match="a function from the number of a pass to a loader"):
        gx.data.from_loader(lambda: Counted())
    with pytest.raises(ValueError, match="no batch in pass 0"):
        gx.data.from_loader([]).read(0, 1)


@pytest.mark.parametrize("loader", [Counted(), iter(Counted())])
def test_loaders_elsewhere_name_the_function_for_them(loader, unchecked):
    """Catches a loader that is taken for one leaf of a pytree, or for the function of a stream."""
    posterior = gx.Posterior(log_prior=lambda w: 0.0, log_likelihood=lambda w, batch: batch[1] * w, num_data=12)
    for call in (
        lambda: gx.data.batches(loader, batch_size=3),
        lambda: gx.data.stream(loader),
        lambda: gx.sample(jax.random.key(0), gx.sgrld(posterior, step_size=0.1), 0.0, batches=loader, num_samples=1),
        lambda: gx.vi.fit(
            jax.random.key(0),
            gx.vi.GaussianOver(np.zeros(2)),
            posterior.log_likelihood,
            loader,
            num_data=12,
            num_steps=1,
        ),
    ):
        with pytest.raises(TypeError, match=r"gx\.data\.from_loader\(loader\)"):
            call()
    network = gx.nn.MLP(2, 1, widths=(), key=jax.random.key(0))
    with pytest.raises(TypeError, match=f"found batches \\({type(loader).__name__}\\)"):
        gx.nn.laplace_posterior(network, gx.nn.GaussianLikelihood(), loader)
    for data in (loader, gx.data.batches(X, batch_size=3)):
        with pytest.raises(TypeError, match=f"control_variates: .*found batches \\({type(data).__name__}\\)"):
            control_variates(posterior, jnp.zeros(2), data)
    with pytest.raises(TypeError, match=rf"Posterior\.full: data must be arrays, found a {type(loader).__name__}\."):
        posterior.full(loader)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"x": X.tolist(), "y": [1, 2]}, r"a list of numbers\. Pass np\.asarray"),
        ({"x": list(X), "y": Y}, r"a list of 12 arrays of shape \(2,\).*np\.stack.*a tuple or a dict"),
        ([{"x": row, "y": label} for row, label in zip(X, Y, strict=True)], "a list of 12 dicts.*np.stack"),
        (list(zip(X, Y, strict=True)), "a list of 12 tuples.*np.stack"),
        ({"x": np.array(["a", "b"])}, "must be an array of numbers, found"),
        ({"x": np.array([X, X[:2]], dtype=object)}, "must be an array of numbers, found"),
    ],
)
def test_batches_of_lists_are_refused(batch, words):
    """Catches lists of examples, which JAX takes for that many arrays; the collated pairs of PyTorch stay."""
    with pytest.raises(TypeError, match=words):
        gx.data.stream(lambda first: iter([batch])).read(0, 1)
    if isinstance(batch, dict) and set(batch) == {"x", "y"}:
        with pytest.raises(TypeError, match=words):
            gx.data.batches(batch, batch_size=2)
    assert gx.data.batches([X, Y], batch_size=2).num_data == 12
