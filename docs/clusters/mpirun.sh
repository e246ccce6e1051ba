#!/bin/sh
# Open MPI: four processes on the hosts of a file. JAX asks Open MPI for their number and addresses.
exec mpirun -n 4 --hostfile hosts.txt geodax fit network contacts.csv --num-chains 32 --out /shared/runs/contacts --distributed
