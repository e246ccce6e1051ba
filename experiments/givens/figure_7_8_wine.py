"""Figures 7 and 8 of Pourzanjani et al. (2021) on wines of three cultivars.

python -m experiments.givens.figure_7_8_wine [--smoke]

The groups are the cultivars of one region. One view has the phenolics and the colour that comes from them, the other alcohol,
acids, minerals and proline. As in the paper one group is small: 16 wines of the third cultivar, beside 40 and 60 of the others.
The wines left out test the fits.
"""

from experiments.common.command import main
from experiments.givens.real_groups import Config, experiment

EXPERIMENT = experiment(
    "givens/figure_7_8_wine",
    Config("wine", (40, 60, 16)),
    Config("wine", (20, 20, 16), seeds=(0,), num_chains=2, num_warmup=40, num_samples=20, most_rhat=1e3),
)

if __name__ == "__main__":
    main(EXPERIMENT)
