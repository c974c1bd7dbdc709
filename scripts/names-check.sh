#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# names-check.sh [--offline]: fetches the libraries whose names docs/names.md calls proven, 2.1 GB besides PyTorch, and runs
# the tests of these names, as root. --offline fetches nothing.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
offline=${1:-}
scripts/real-torch.sh $offline
scripts/real-driver.sh $offline 535
scripts/real-driver.sh $offline --math 535
for name in llama ggml onnx pycuda; do scripts/real-library.sh $offline $name; done
go test -count=1 ./report/purpose -run 'Names'
go test -count=1 -v -timeout 30m ./cmd/vramprof/test/e2e -run 'TestNames|TestLlamas|TestNCCLs|TestTheKVCache' | grep --line-buffered -vE '^=== '
