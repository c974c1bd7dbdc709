// SPDX-License-Identifier: Apache-2.0

package output

import "testing"

func TestNamesOfWhatRecordWrites(t *testing.T) {
	for _, x := range []struct {
		output           string
		formats          []string
		profile, capture string
	}{
		{"", nil, "name.pb.gz", ""},
		{"", []string{"capture"}, "", "name.vram"},
		{"", []string{"pprof", "capture"}, "name.pb.gz", "name.vram"},
		{"a", nil, "a", ""},
		{"a.pb.gz", nil, "a.pb.gz", ""},
		{"d/a.vram", nil, "", "d/a.vram"},
		{"a.vram", []string{"pprof"}, "a.vram", ""},
		{"a.pb.gz", []string{"capture"}, "", "a.pb.gz"},
		{"a.vram", []string{"capture", "capture"}, "", "a.vram"},
		{"d.d/a.vram", []string{"capture", "pprof"}, "d.d/a.pb.gz", "d.d/a.vram"},
		{"a.pb.gz", []string{"capture", "pprof"}, "a.pb.gz", "a.vram"},
		{"a.prof", []string{"capture", "pprof"}, "a.prof", "a.prof.vram"},
	} {
		profile, capture, err := Paths(x.output, x.formats, "name")
		if err != nil || profile != x.profile || capture != x.capture {
			t.Errorf("%q %q: %q and %q, want %q and %q (%v)", x.output, x.formats, profile, capture, x.profile, x.capture, err)
		}
	}
	if _, _, err := Paths("a", []string{"svg"}, "name"); err == nil {
		t.Errorf("an unknown format: %v", err)
	}
}
