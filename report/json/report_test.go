// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := WriteLeaks(&b, reporttest.Snapshot(), reporttest.Stacks(), report.Options{}); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "leaks.json", b.Bytes())
}
