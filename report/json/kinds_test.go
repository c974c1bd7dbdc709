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
