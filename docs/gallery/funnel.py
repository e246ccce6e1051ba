"""A funnel in four metrics, from the record of the experiment."""

import sys

from experiments.common.experiment import load
from experiments.sgrld.figure_2 import EXPERIMENT

EXPERIMENT.pictures["funnel"](load(EXPERIMENT)).savefig(sys.argv[1], dpi=150)
