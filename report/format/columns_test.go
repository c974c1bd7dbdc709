// SPDX-License-Identifier: Apache-2.0

package format

import (
	"slices"
	"testing"
)

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

func TestAFigureAndItsUnitAreOneWord(t *testing.T) {
	got := Words("GPU 0: 38.0 GiB of 79.6 GiB: tensors (+1.95 GiB in 1m40s), 4,806 MiB/min, 10 % of 0 B.")
	want := []string{"GPU", "0:", "38.0 GiB", "of", "79.6 GiB:", "tensors", "(+1.95 GiB", "in", "1m40s),", "4,806 MiB/min,", "10 %", "of", "0 B."}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := Words("a letter B, and MiB alone"); !slices.Equal(got, []string{"a", "letter", "B,", "and", "MiB", "alone"}) {
		t.Errorf("%q", got)
	}
}

func TestASentenceIsCutBetweenWords(t *testing.T) {
	const text = "Peak of tensors 1.30 GiB in step 2,987 of 3,543"
	for width, want := range map[int]string{47: text, 46: "Peak of tensors 1.30 GiB in step 2,987 of …", 26: "Peak of tensors 1.30 GiB …", 25: "Peak of tensors …", 5: "Peak…", 6: "Peak …"} {
		if got := CutWords(text, width); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}
