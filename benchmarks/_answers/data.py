"""The data of the posteriors of ``benchmarks/time_to_answer.py``, for programs in every language."""

import numpy as np


def matrix() -> dict:
    from _stiefel.target import make_target

    f, b, weights = make_target(10, 3)
    return {"n": 10, "p": 3, "f": f, "b": b, "weights": weights}


def pca() -> dict:
    from sklearn.datasets import load_wine

    table = load_wine().data
    table = (table - table.mean(0)) / table.std(0)
    return {"n": table.shape[1], "p": 3, "rows": len(table), "scatter": table.T @ table}


def eigenmodel() -> dict:
    generator = np.random.default_rng(0)
    nodes = 40
    true = np.linalg.qr(generator.standard_normal((nodes, 2)))[0]
    logits = true @ np.diag([20.0, -20.0]) @ true.T - 1.0
    first, second = np.triu_indices(nodes, 1)
    edges = generator.uniform(size=len(first)) < 1 / (1 + np.exp(-logits[first, second]))
    return {"n": nodes, "p": 2, "pairs": len(first), "first": first, "second": second, "edges": edges.astype(int)}


def schools() -> dict:
    return {
        "effects": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
        "errors": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    }


DATA = {"matrix": matrix, "pca": pca, "eigenmodel": eigenmodel, "schools": schools}
