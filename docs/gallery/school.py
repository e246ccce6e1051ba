"""Hidden states of a primary school's contacts over two days, from the record of the experiment."""

import sys

from experiments.common.experiment import load
from experiments.givens.figure_9_10 import EXPERIMENT

EXPERIMENT.pictures["states-better"](load(EXPERIMENT)).savefig(sys.argv[1], dpi=150)
