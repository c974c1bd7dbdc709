#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-fleet.sh [SECTION…]: runs vramprof serve on the servers that fleets run, as root. Each section
# is a script below scripts/fleet: container, helm, kubernetes, podman, prometheus, slurm; by default all. It
# installs what is missing, and skips a section whose server is not available. Not part of CI.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
[ "$(id -u)" = 0 ] || { echo "test-fleet.sh: run it as root" >&2; exit 4; }
. scripts/install.sh
setup fleet || exit 1

all=" container helm kubernetes podman prometheus slurm "
[ $# != 0 ] || set -- $all
passed=0 failed=0 skipped=0
for section in "$@"; do
  case $all in *" $section "*) ;; *) echo "test-fleet.sh: no section $section (sections:$all)" >&2; exit 2 ;; esac
  echo "== $section"
  begin=$SECONDS
  "scripts/fleet/$section.sh"
  case $? in
    0) passed=$((passed + 1)); echo "ok    $section  $((SECONDS - begin))s" ;;
    77) skipped=$((skipped + 1)); echo "skip  $section" ;;
    *) failed=$((failed + 1)); echo "FAIL  $section" ;;
  esac
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
