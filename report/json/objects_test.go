// SPDX-License-Identifier: Apache-2.0

package json

import (
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestObjectsAndContextsAreInTheJSON(t *testing.T) {
	r := NewLeaks(reporttest.ObjectsSnapshot(), reporttest.Stacks(), report.Options{})
	var grown, live uint64
	for _, o := range r.Objects {
		live += o.Live
		if o.Unexplained {
			grown += o.Live - o.Before
		}
	}
	if len(r.ContextOnly) != 4 || live != 11+1+1+5+3 || grown != 12 {
		t.Errorf("%d processes with contexts only, %d objects live, %d grown: %+v", len(r.ContextOnly), live, grown, r.Objects)
	}
}
