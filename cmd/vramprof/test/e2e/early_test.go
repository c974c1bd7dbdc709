// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandStartsBeforeTheProgramsAreVerifiedAndMissesNothing: in the first session the command
// waits until the kernel has accepted the programs, which the cache notes. In the second it does not
// wait. Both times its first calls are booked.
func TestCommandStartsBeforeTheProgramsAreVerifiedAndMissesNothing(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	cache := filepath.Join(t.TempDir(), "cache")
	script := writeFile(t, "script", everyOperation)
	for session := range 2 {
		if marks, _ := filepath.Glob(cache + "/*.mark"); len(marks) != session {
			t.Errorf("before session %d the cache has the marks %v", session+1, marks)
		}
		s := startRecord(t, env, "--cache", cache, "--", "sh", "-c", `echo began >&2; exec "$@"`, "sh", dir.Program("alloc_c"), script).wait()
		said := s.stderr.String()
		began, tracing := strings.Index(said, "began"), strings.Index(said, "vramprof: tracing")
		if began < 0 || tracing < 0 || session == 1 && began > tracing {
			t.Errorf("session %d: the command did not begin before the programs were verified:\n%s", session+1, said)
		}
		booksOf(t, s.profile()).compare(t, everyOperationBooks("cuda:0"))
	}
}
