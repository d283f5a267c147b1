#!/usr/bin/env bash
# Runs a sweep as a Grid Engine job. Adapt the #$ lines, then submit the script in ringmark's folder:
#
#   qsub scripts/gridengine.sh [options of `ringmark sweep`, such as --batch-size 256 --dtype fp16 --cases 1n1g,4n8g]
#
# The programs and the result folder must have the same path on every host. `--sync /tmp/ringmark` copies the programs, so
# only the result folder must be shared; this needs ssh access to the hosts. Open MPI needs a parallel environment with
# `control_slaves TRUE` (`qconf -sp mpi`) to start ranks.
#
#$ -N ringmark
#$ -S /bin/bash
# One slot per GPU: four hosts with eight GPUs each, if the parallel environment fills one host before the next.
#$ -pe mpi 32
#$ -l h_rt=02:00:00
#$ -cwd
#$ -V
#$ -j y
#$ -o ringmark-$JOB_ID.log
# Before qdel kills the job, the sweep receives SIGUSR2, ends its ranks and prints the command that resumes the sweep.
#$ -notify
set -euo pipefail
trap : USR1 USR2

PATH=$PWD/target/release:$PATH
out=results/gridengine-$JOB_ID

# Defaults: DLPerf's six cases, batch size 128, fp32.
ringmark sweep --launcher gridengine --out "$out" "$@"
ringmark extract "$out"
