// SPDX-License-Identifier: Apache-2.0

package stacks

import "testing"

func TestEqualStacksAreKeptOnce(t *testing.T) {
	s := newShared[string]()
	first := s.one([]string{"a", "b"})
	if again := s.one([]string{"a", "b"}); &again[0] != &first[0] {
		t.Error("an equal stack is a copy")
	}
	for _, other := range [][]string{{"a"}, {"b", "a"}, {"a", "b", "c"}, {"ab"}, {}} {
		got := s.one(other)
		if len(got) != len(other) || len(got) > 0 && (got[0] != other[0] || &got[0] == &first[0]) {
			t.Errorf("%q became %q", other, got)
		}
	}
}
