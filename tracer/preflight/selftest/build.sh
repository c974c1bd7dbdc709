#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the program of the self-test: build.sh [OUT]
set -euo pipefail
cd "$(dirname "$0")"
gcc -nostdlib -static -no-pie -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,noseparate-code -o "${1:-selftest_amd64}" selftest.S
strip -K probed "${1:-selftest_amd64}"
