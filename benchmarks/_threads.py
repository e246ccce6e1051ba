"""One thread for what is timed. Imported before JAX and whatever brings it."""

import os

# XLA's pool has NPROC threads where that is set, as many as there are processors otherwise. Its flags that are known for
# this (xla_cpu_multi_thread_eigen, intra_op_parallelism_threads) leave products of matrices on all of them.
for _name in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
