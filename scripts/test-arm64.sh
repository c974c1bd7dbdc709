#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-arm64.sh [--ci]: vets the code for arm64, and runs the tests that need no kernel features in
# a simulated arm64 processor (qemu-user). --ci builds vramprof instead of vetting everything, and
# runs the packages with code for one architecture. It traces nothing.
# Exit status 77: no qemu-aarch64-static.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/install.sh
setup_go

pure="./bpf ./tracer/cudaapi ./tracer/probepoint ./tracer/deadline ./symbolize/internal/dwarf ./report/format ./report/frames ./report/timeline"
[ "${1:-}" = --ci ] && pure="./bpf ./tracer/cudaapi ./tracer/probepoint ./symbolize/internal/dwarf" || pure+=" ./tracer/ledger ./symbolize ./tracer/capture ./report/verdict ./report ./report/compare ./report/text ./report/json ./report/profile ./report/export"
export GOARCH=arm64 CGO_ENABLED=0
if [ "${1:-}" = --ci ]; then go build -ldflags=-w -o /dev/null ./cmd/vramprof; else go vet ./...; fi
simulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || { echo "skipped: vetted, but qemu-aarch64-static is not installed to run the tests"; exit 77; }
go test -short -vet=off -ldflags=-w -timeout 30m -exec "$simulator" $pure
