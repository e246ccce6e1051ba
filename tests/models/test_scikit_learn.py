"""scikit-learn's own checks of the estimators, each in a process without the type checks of the tests.

One of these checks hands arguments of any type to the constructor and expects it to keep them.
"""

import subprocess
import sys

import pytest

CHECK = """
from sklearn.utils.estimator_checks import check_estimator
from geodax.models import *

results = check_estimator({estimator}, on_skip=None, on_fail=None)
failed = {{r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}}
passed = {{r["check_name"] for r in results if r["status"] == "passed"}}
"""
ALL_PASS = "assert not failed, failed\nassert len(passed) > 40"
# those that fit tables of two or three columns, or without groups, cannot pass
OF_VIEWS = """
from sklearn.utils import get_tags
assert get_tags(HierarchicalCCA()).transformer_tags is not None
needed = {"check_estimator_cloneable", "check_estimator_repr", "check_no_attributes_set_in_init", "check_mixin_order"}
needed |= {"check_get_params_invariance", "check_set_params", "check_valid_tag_types"}
assert needed <= passed, needed - passed
"""
_MLP = "((8,), num_warmup=400, num_samples=5, thinning=5, num_chains=1, random_state=0)"
_CCA = "(1, views=([0, 1], [2, 3]), pooling='complete', num_warmup=20, num_samples=10, num_chains=1)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "asserted"),
    [
        ("BayesianPCA(1, num_warmup=30, num_samples=30, num_chains=1, random_state=0)", ALL_PASS),
        (f"BayesianMLPClassifier{_MLP}", ALL_PASS),
        (f"BayesianMLPRegressor{_MLP}", ALL_PASS),
        ("UnitNetworkRegressor(2, num_warmup=60, num_samples=20, num_chains=1, random_state=0)", ALL_PASS),
        (f"HierarchicalCCA{_CCA}", OF_VIEWS),
    ],
    ids=lambda value: value.split("(")[0] if "(" in value else "",
)
def test_checks_pass(estimator, asserted):
    program = CHECK.format(estimator=estimator) + asserted
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
