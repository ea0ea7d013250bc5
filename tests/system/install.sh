#!/bin/sh
# Installs what the system's tests use beside Python: Prometheus and Slurm, where that is allowed.
# Never fails: without them those tests are skipped, and say why.
missing=""
command -v prometheus >/dev/null || missing="$missing prometheus"
command -v slurmctld >/dev/null || missing="$missing slurm-wlm"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive apt-get install --option DPkg::Lock::Timeout=600 --yes --quiet=2 --no-install-recommends $missing >/dev/null ||
    echo "$missing could not be installed: their tests will be skipped"
else
  echo "$missing not installed: their tests will be skipped (apt-get install$missing)"
fi
exit 0
