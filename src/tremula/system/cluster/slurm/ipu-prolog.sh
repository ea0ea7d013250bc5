#!/bin/sh
# Before a job: a partition as large as its `--gres=ipu:N`, and a file that only its user can read.
# A job that gets none is cancelled: a prolog that fails would drain the node.
set -u
. "$(dirname "$0")/ipu.env"
job=$SLURM_JOB_ID
wanted=$(scontrol --oneliner show job "$job" | sed -n 's/.*TresPerNode=gres[:/]ipu:\([0-9][0-9]*\).*/\1/p')
[ -n "$wanted" ] || exit 0
size=1
while [ "$size" -lt "$wanted" ]; do size=$((size * 2)); done
mkdir -p "$IPU_SPOOL" && chmod 755 "$IPU_SPOOL"
if ! vipu create partition "p$job" --size "$size" --reconfigurable --config-folder "$IPU_SPOOL/$job" \
  >"$IPU_SPOOL/p$job.log" 2>&1; then
  logger -t ipu-prolog "job $job: $(tail -n 2 "$IPU_SPOOL/p$job.log" | tr '\n' ' ')" || true
  scancel "$job"
  exit 0
fi
chown -R "$SLURM_JOB_UID" "$IPU_SPOOL/$job"
exit 0
