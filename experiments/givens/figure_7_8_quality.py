"""Figures 7 and 8 of Pourzanjani et al. (2021) on red wines in groups by quality.

python -m experiments.givens.figure_7_8_quality [--smoke]

Groups are the grades that tasters gave; the chemistry within a grade may well be much the same in all. One view has the acids,
the other sugar, salts, sulphur, density and alcohol (positive ones as logarithms). Rows of the groups are the paper's: 16 of
grade 7, 30 of grade 4, 52 of grade 5, 86 of grade 6. The wines left out test the fits.
"""

from experiments.common.command import main
from experiments.givens.real_groups import Config, experiment

EXPERIMENT = experiment(
    "givens/figure_7_8_quality",
    Config("quality", (30, 52, 86, 16), seeds=(0,)),
    Config("quality", (20, 20, 20, 16), seeds=(0,), num_chains=2, num_warmup=40, num_samples=20, most_rhat=1e3),
)

if __name__ == "__main__":
    main(EXPERIMENT)
