"""Tables 3 and 9 of Yu, Hartmann, Williams and Klami (2023) in small: ResNet-8 on 10,000 images of CIFAR-10.

    python -m experiments.sgrld.table_3_small     # goes on where it was stopped; --epochs 200 on a GPU
    python -m experiments.sgrld.table_3_small --smoke

As :mod:`experiments.sgrld.table_3`, with the paper's learning rates on the mean potential, for 10 epochs in batches of 100,
half of them burn-in, which a processor can finish and which shows that the code learns; and with Monge's metric at a small
weight and the identity's rate, which the paper leaves out here.
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
    config=table_3.Config(seeds=(0, 1), epochs=10, num_train=10_000, num_burn=500, thinning=25, looks=10, **_SMALL),
    smoke=dataclasses.replace(table_3.SMOKE, **_SMALL | {"metrics": ("Monge",)}),
    tables={"scores": table_3.scores_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
