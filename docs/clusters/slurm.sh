#!/bin/sh
# sbatch slurm.sh: one process on each of 4 nodes, with all its GPUs; JAX asks SLURM for the rest. Start it again to go
# on with a run that was stopped. The file is in the folder in which sbatch is called, and all nodes see that folder.
#SBATCH --job-name=geodax
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue

RUN="$SLURM_SUBMIT_DIR/runs/contacts"

if [ -f "$RUN/config.json" ]; then
    exec srun --kill-on-bad-exit=1 geodax resume "$RUN" --distributed --no-progress
fi
exec srun --kill-on-bad-exit=1 geodax fit network contacts.csv --num-chains 32 --out "$RUN" --distributed --no-progress
