// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestHoldersJSON(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	h := report.Holders{
		PID: 4242, Comm: "python3\x1b[31m",
		Before: reporttest.Walk(t, "synthetic-early.image", begin), Result: reporttest.Walk(t, "synthetic-later.image", begin.Add(30*time.Second)),
	}
	var b bytes.Buffer
	if err := WriteHolders(&b, &h); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "holders.json", b.Bytes())
}
