// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vramprof/vramprof/tracer/preflight"
)

func TestCheckFitsNarrowScreens(t *testing.T) {
	r := preflight.Result{Name: "return probes", Status: preflight.Fail, Detail: "this kernel kills programs under seccomp", Remedy: "use a newer one"}
	for columns := 20; columns <= 200; columns++ {
		var b strings.Builder
		writeResult(&b, r, columns)
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%d columns, want at most %d: %s", n, columns, line)
			}
		}
	}
}
