#!/bin/sh
# After a job, however it ended: its IPUs are free again.
set -u
. "$(dirname "$0")/ipu.env"
job=$SLURM_JOB_ID
[ -d "$IPU_SPOOL/$job" ] || exit 0
vipu remove partition "p$job" --force >>"$IPU_SPOOL/p$job.log" 2>&1
rm -rf "${IPU_SPOOL:?}/$job" "$IPU_SPOOL/p$job.log"
exit 0
