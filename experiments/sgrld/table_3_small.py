"""Tables 3 and 9 of Yu, Hartmann, Williams and Klami (2023) in small: ResNet-8 on 10,000 images of CIFAR-10.

    python -m experiments.sgrld.table_3_small     # goes on where it was stopped; --epochs 200 on a GPU
    python -m experiments.sgrld.table_3_small --smoke

As :mod:`experiments.sgrld.table_3`, with the paper's learning rates on the mean potential, with 8 channels in the first stage,
for 10 epochs in batches of 100, half of them burn-in, and on 2,000 test images: a processor can finish it, and it shows that
the code learns. It has Monge's metric too, at a small weight and the identity's rate, which the paper leaves out here.
On a GPU too, seeds run one after the other: convolutions with the kernels of two networks took 0.28 seconds a step there.
"""

import dataclasses

from experiments.common.command import main
from experiments.sgrld import table_3

_SMALL = {
    "metrics": ("Identity", "Wenzel", "RMSprop", "Monge", "Shampoo"),
    "alpha2": 0.05,
    "blocks_a_stage": 1,
}
EXPERIMENT = dataclasses.replace(
    table_3.EXPERIMENT,
    name="sgrld/table_3_small",
    config=table_3.Config(
        seeds=(0, 1), epochs=10, width=8, num_train=10_000, num_test=2_000, num_burn=500, thinning=50, looks=1, **_SMALL
    ),
    smoke=dataclasses.replace(table_3.SMOKE, **_SMALL | {"metrics": ("Monge",)}),
    tables={"scores": table_3.scores_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
