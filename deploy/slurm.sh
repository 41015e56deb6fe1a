#!/bin/bash
# Grades a folder of submissions on one GPU of a Slurm cluster:
#   sbatch deploy/slurm.sh SUBMISSIONS RUN
# Needs `warpgrade` on PATH; for an image set WARPGRADE_COMMAND="apptainer exec --nv warpgrade.sif warpgrade".
# A batch is resumable: a job that is requeued continues with the submissions that have no card.
#SBATCH --job-name=warpgrade
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: sbatch deploy/slurm.sh SUBMISSIONS RUN" >&2
    exit 2
fi
submissions=$1
run=$2
read -r -a warpgrade <<<"${WARPGRADE_COMMAND:-warpgrade}"

# On the node's own disk: builds are many small files, which a shared file system serves slowly.
export WARPGRADE_CACHE=${WARPGRADE_CACHE:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/warpgrade-$(id -u)}

"${warpgrade[@]}" doctor --prepare
status=0
"${warpgrade[@]}" batch "$submissions" --run "$run" --device cuda || status=$?

# Status 1 means that some submissions are not correct: the job itself has succeeded.
if [ "$status" -gt 1 ]; then
    exit "$status"
fi
