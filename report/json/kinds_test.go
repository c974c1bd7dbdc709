// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestEveryKindInJSON(t *testing.T) {
	s := reporttest.KindsSnapshot()
	r := NewLeaks(s, reporttest.Stacks(), report.Options{Top: 1})
	r.Sites, r.Processes = nil, r.Processes[:1] // for brevity
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "kinds.json", append(text, '\n'))
}

// A script that adds up the sites of a plane must not count imported memory with its importers'.
func TestImportedMemoryHasItsOwnPlane(t *testing.T) {
	r := NewLeaks(reporttest.KindsSnapshot(), reporttest.Stacks(), report.Options{Top: 100})
	var sites, planes int64
	for _, x := range r.Sites {
		if (x.Kind == "imported") != (x.Plane == report.PlaneImported) {
			t.Errorf("a site of kind %s is in plane %s", x.Kind, x.Plane)
		}
		if x.Plane == report.PlaneImported {
			sites += int64(x.LiveBytes)
		}
	}
	for _, x := range r.Planes {
		if x.Plane == report.PlaneImported {
			planes += x.ApartBytes
		}
	}
	if sites == 0 || sites != int64(r.ImportedBytes) || planes != sites {
		t.Errorf("sites have %d bytes of imported memory, planes %d, the report %d", sites, planes, r.ImportedBytes)
	}
}
