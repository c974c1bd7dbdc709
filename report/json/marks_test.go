// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestMarksTravelWithTheData(t *testing.T) {
	s, st := reporttest.Flooded()
	var page, packed bytes.Buffer
	if err := WriteLeaks(&page, s, st, report.Options{}); err != nil {
		t.Fatal(err)
	}
	var r LeaksReport
	if err := json.Unmarshal(page.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if x := r.Sites[0]; len(x.Incomplete) != 3 || x.MissingCount != 2 || x.CrowdedCount != 3 || len(r.Sites[1].Incomplete) != 2 || r.Sites[2].Incomplete != nil {
		t.Errorf("sites %+v", r.Sites)
	}
	if p := r.Processes[0]; p.LostEvents != 12 || len(p.Beyond) != 2 || p.Beyond[0] != (BeyondReport{"sites", 3}) || len(r.Processes[1].Beyond) != 0 {
		t.Errorf("processes %+v", r.Processes)
	}
	if len(r.Failures[0].Incomplete) != 2 || r.Failures[1].Incomplete != nil {
		t.Errorf("failures %+v", r.Failures)
	}
	if err := profile.Write(&packed, s, st); err != nil {
		t.Fatal(err)
	}
	p, err := pprof.Parse(&packed)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, x := range p.Sample {
		got = append(got, x.Label["incomplete"])
	}
	if want := [][]string{{"lost events", "missing allocations", "several sites"}, {"lost events", "missing stack"}, nil}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("labels %q, want %q", got, want)
	}
}
