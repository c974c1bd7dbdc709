// SPDX-License-Identifier: Apache-2.0

package panics

import (
	"strings"
	"testing"
)

func TestPanicsAreCountedByWhatTheyCost(t *testing.T) {
	var list List
	fail := func(what string) {
		defer list.Recovered(what)
		var none []int
		_ = none[len(what)]
	}
	fail("an event")
	fail("an event")
	fail("a stack")
	func() { defer list.Recovered("nothing") }()
	got := list.Warnings()
	if len(got) != 2 || !strings.Contains(got[0], "lost a stack 1 times") || !strings.Contains(got[1], "lost an event 2 times") {
		t.Errorf("got %q", got)
	}
	if !strings.Contains(got[0], "index out of range") || !strings.HasSuffix(got[0], "at panics_test.go:15") {
		t.Errorf("%q names no place", got[0])
	}
}
