#!/usr/bin/env bash
# Template for a sweep as a Grid Engine job. Change the lines after #$, then in ringmark's folder:
#
#   qsub scripts/gridengine.sh [options of `ringmark sweep`, as --batch-size 256 --dtype fp16 --cases 1n1g,4n8g]
#
# The programs and the result folder must have the same path on every host; with `--sync /tmp/ringmark`, which needs ssh to
# the hosts, only the result folder. Needs a parallel environment with `control_slaves TRUE` (`qconf -sp mpi`), with which
# Open MPI starts ranks.
#
#$ -N ringmark
#$ -S /bin/bash
# One slot per GPU: four hosts with eight each, if the parallel environment fills a host before it uses the next.
#$ -pe mpi 32
#$ -l h_rt=02:00:00
#$ -cwd
#$ -V
#$ -j y
#$ -o ringmark-$JOB_ID.log
# Before qdel kills the job, the sweep gets SIGUSR2: it ends its ranks and prints the command that continues it.
#$ -notify
set -euo pipefail
trap : USR1 USR2

PATH=$PWD/target/release:$PATH
out=results/gridengine-$JOB_ID

# Without options: DLPerf's six cases, batch 128, fp32.
ringmark sweep --launcher gridengine --out "$out" "$@"
ringmark extract "$out"
