// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestTorchInJSON(t *testing.T) {
	r := NewLeaks(reporttest.TorchSnapshot(), reporttest.TorchStacks(), report.Options{Top: 1})
	for i := range r.Sites {
		r.Sites[i].Stack = nil // for brevity
	}
	r.Cache[0].Stack = nil
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "torch.json", append(text, '\n'))
}
