#!/bin/sh
# What a job's tasks find in their environment.
. "$(dirname "$0")/ipu.env"
config=$IPU_SPOOL/$SLURM_JOB_ID/p${SLURM_JOB_ID}_gcd0.conf
if [ -e "$config" ]; then
  echo "export IPUOF_CONFIG_PATH=$config"
  echo "export IPUOF_VIPU_PARTITION=p$SLURM_JOB_ID"
fi
