#!/bin/sh
# Open MPI 4: one process on each of the 4 hosts of a file, with all its cores and GPUs. JAX asks Open MPI for the rest.
exec mpirun -n 4 --hostfile hosts.txt --map-by node --bind-to none \
    geodax fit network contacts.csv --num-chains 32 --out /shared/runs/contacts --distributed --no-progress
