// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/vramprof/vramprof/report/verdict"
)

// The ranks of a job get the same advice: it is said once, with the evidence of two.
func TestAdviceOfManyRanksIsShort(t *testing.T) {
	var list []verdict.Advice
	for range 9 {
		list = append(list, verdict.Advice{Text: "make the batch smaller", Evidence: "of a peak of 4 MiB", Bytes: 1})
	}
	got := sayOnce(append(list, verdict.Advice{Text: "another", Bytes: 2}))
	want := verdict.Advice{Text: "make the batch smaller", Evidence: "of a peak of 4 MiB; of a peak of 4 MiB; and 7 more like these", Bytes: 9}
	if len(got) != 2 || got[0].Evidence != want.Evidence || got[0].Bytes != want.Bytes || got[1].Evidence != "" {
		t.Errorf("%+v", got)
	}
	if got := sayOnce(list[:2]); len(got) != 1 || got[0].Evidence != "of a peak of 4 MiB; of a peak of 4 MiB" {
		t.Errorf("%+v", got)
	}
}
