#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kubernetes.sh: checks that packaging/kubernetes is what scripts/fleet/generate.sh makes of the
# chart, and decodes it strictly.
. "$(dirname "$0")/common.sh"
go_tool helm helm.sh/helm/v3/cmd/helm@v3.22.0
(cd scripts/fleet/decode && go build -o "$bin/decode" .) || skip "the types of k8s.io/api are not available"
scripts/fleet/generate.sh "$work/packaging"
diff -r packaging/kubernetes "$work/packaging/kubernetes" || fail "packaging/kubernetes is outdated (run scripts/fleet/generate.sh)"
diff -r packaging/helm/vramprof/files "$work/packaging/helm/vramprof/files" || fail "the chart's files are outdated (run scripts/fleet/generate.sh)"
for file in packaging/kubernetes/*.yaml; do
  decode <"$file" >"$work/kinds" || fail "$file"
  echo "$file: $(paste -sd, "$work/kinds")"
done
