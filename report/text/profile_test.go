// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestSameSnapshotGivesTheSameBytes(t *testing.T) {
	write := func() string {
		var b bytes.Buffer
		s, st := reporttest.Snapshot(), reporttest.Stacks()
		for _, err := range []error{
			profile.Write(&b, s, st), WriteLeaks(&b, s, st, report.Options{}, Screen{}),
			json.WriteLeaks(&b, s, st, report.Options{}), WriteSummary(&b, s, st, report.Options{}, Screen{}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	first := write()
	for range 20 {
		if write() != first {
			t.Fatal("two runs differ")
		}
	}
}
