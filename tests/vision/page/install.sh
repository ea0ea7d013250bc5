#!/bin/sh
# Fetches what the page's tests need: playwright-core from npm, and chromium where it may be installed.
# Never fails: without them the tests are skipped, and say why.
cd "$(dirname "$0")" || exit 0
if ! command -v npm >/dev/null; then
  echo "npm is not installed: tests in a browser will be skipped (apt-get install npm)"
elif ! npm ci --no-audit --no-fund --loglevel=error; then
  echo "npm could not fetch playwright-core: tests in a browser will be skipped"
fi
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install --option DPkg::Lock::Timeout=600 --yes --quiet=2 chromium >/dev/null ||
      echo "chromium could not be installed: tests in a browser will be skipped"
  else
    echo "chromium is not installed: tests in a browser will be skipped (apt-get install chromium)"
  fi
fi
exit 0
