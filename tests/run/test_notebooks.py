"""What a run shows in a notebook."""

from importlib.util import find_spec

import pytest

PROGRAM = """
import jax, jax.numpy as jnp, geodax as gx
draws = gx.sample(jax.random.key(0), gx.nuts(lambda x: -0.5 * jnp.sum(x**2)), jnp.zeros(2), num_samples=50, num_warmup=50)
"""


@pytest.mark.thorough
def test_a_line_of_progress():
    """Catches an empty area, or a warning, where ipywidgets is not installed."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    if find_spec("ipywidgets"):
        pytest.skip("with ipywidgets there is a bar")
    cell = nbformat.v4.new_code_cell(PROGRAM)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    printed = "".join(output.get("text", "") for output in notebook.cells[0].outputs)
    assert "sampling 100/100" in printed
    assert "\r" in printed
    assert all(output["output_type"] == "stream" and output["name"] == "stdout" for output in notebook.cells[0].outputs)
