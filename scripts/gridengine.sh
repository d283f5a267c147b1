#!/usr/bin/env bash
# A sweep as a job of Grid Engine, to start from. Change what stands behind #$, then, where ringmark is:
#
#   qsub scripts/gridengine.sh [options of `ringmark sweep`, as --batch-size 256 --dtype fp16 --cases 1n1g,4n8g]
#
# The programs and the result folder must be at the same place on every host; with `--sync /tmp/ringmark`, where ssh
# leads to the hosts, the result folder alone. Needs a parallel environment with `control_slaves TRUE` (`qconf -sp mpi`),
# by which Open MPI starts ranks.
#
#$ -N ringmark
#$ -S /bin/bash
# One slot a GPU: four hosts with eight each, where the parallel environment fills a host before it takes the next.
#$ -pe mpi 32
#$ -l h_rt=02:00:00
#$ -cwd
#$ -V
#$ -j y
#$ -o ringmark-$JOB_ID.log
# A while before qdel kills the job, the sweep gets SIGUSR2: it ends its ranks and says how to go on.
#$ -notify
set -euo pipefail
trap : USR1 USR2

PATH=$PWD/target/release:$PATH
out=results/gridengine-$JOB_ID

# Without options: DLPerf's six cases, batch 128, fp32.
ringmark sweep --launcher gridengine --out "$out" "$@"
ringmark extract "$out"
