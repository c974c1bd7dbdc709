// SPDX-License-Identifier: Apache-2.0

package heapscan

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/holders"
)

// outcome returns a line on a walk: "walked process 7 in 120ms: it has 14 storages". result is nil
// where err is not.
func outcome(pid uint32, took time.Duration, result *holders.Result, err error) string {
	what := fmt.Sprintf("walked process %d in %v", pid, took.Round(time.Millisecond))
	if result == nil {
		return fmt.Sprintf("%s, without a result: %s", what, untrusted.Clean(fmt.Sprint(err)))
	}
	return fmt.Sprintf("%s: it has %d storages", what, len(result.Storages))
}
