// SPDX-License-Identifier: Apache-2.0

package format

import "testing"

func TestTextIsCutByColumns(t *testing.T) {
	for _, c := range []struct {
		text                   string
		width                  int
		begin, end, left, back string
	}{
		{"train.py", 8, "train.py", "train.py", "train.py", "train.py"},
		{"train.py", 5, "trai…", "…n.py", "train.py", "train.py"},
		{"很很很", 5, "很很…", "…很很", "很很很", "很很很"},
		{"很很很", 4, "很…", "…很", "很很很", "很很很"},
		{"e\u0301t\u0301", 4, "e\u0301t\u0301", "e\u0301t\u0301", "e\u0301t\u0301  ", "  e\u0301t\u0301"},
		{"👩‍🚀x", 2, "…", "…x", "👩‍🚀x", "👩‍🚀x"},
		{"a", 1, "a", "a", "a", "a"},
		{"ab", 0, "…", "…", "ab", "ab"},
		{"▁▂¹×→", 5, "▁▂¹×→", "▁▂¹×→", "▁▂¹×→", "▁▂¹×→"}, // of ambiguous width: one column here
	} {
		if got := Cut(c.text, c.width); got != c.begin {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.text, c.width, got, c.begin)
		}
		if got := CutFront(c.text, c.width); got != c.end {
			t.Errorf("CutFront(%q, %d) = %q, want %q", c.text, c.width, got, c.end)
		}
		if got := Pad(c.text, c.width); got != c.left {
			t.Errorf("Pad(%q, %d) = %q, want %q", c.text, c.width, got, c.left)
		}
		if got := Pad(c.text, -c.width); got != c.back {
			t.Errorf("Pad(%q, %d) = %q, want %q", c.text, -c.width, got, c.back)
		}
	}
}
