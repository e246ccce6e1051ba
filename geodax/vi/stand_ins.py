"""Modules that are called in place of a layer."""

from typing import Any

import equinox as eqx
import jax


class AbstractStandIn(eqx.Module):
    """A module in place of a layer, with those of its attributes that hold no arrays, such as its sizes."""

    layer: eqx.AbstractVar[Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "layer" not in vars(self):
            raise AttributeError(name)
        value = getattr(self.layer, name)
        if any(map(eqx.is_array, jax.tree.leaves(value))):
            raise ValueError(
                f"the network uses the array {name!r} of a layer ({type(self.layer).__name__}) outside its calls, as "
                "equinox.nn.Shared (tied weights), WeightNorm and SpectralNorm do. What the layer does is then more "
                "than its calls: leave it out of where=, or use gx.sghmc or gx.vi.ivon, which take such networks."
            )
        return value
