// SPDX-License-Identifier: Apache-2.0

package stacks

import "testing"

func TestEqualStacksAreKeptOnce(t *testing.T) {
	s := newShared[string]()
	first := s.take([]string{"a", "b"})
	if again := s.take([]string{"a", "b"}); again != first {
		t.Error("an equal stack is a copy")
	}
	for _, other := range [][]string{{"a"}, {"b", "a"}, {"a", "b", "c"}, {"ab"}, {}} {
		got := s.take(other)
		if len(got.frames) != len(other) || len(other) > 0 && got.frames[0] != other[0] || got == first {
			t.Errorf("%q became %q", other, got.frames)
		}
	}
}

func TestACopyGoesWithItsLastUser(t *testing.T) {
	s := newShared[string]()
	first, again := s.take([]string{"a"}), s.take([]string{"a"})
	s.give(first)
	if s.take([]string{"a"}) != again {
		t.Error("a stack that is still used was dropped")
	}
	s.give(again)
	s.give(again)
	s.give(nil)
	if len(s.known) != 0 {
		t.Errorf("%d copies are left that nobody uses", len(s.known))
	}
}
