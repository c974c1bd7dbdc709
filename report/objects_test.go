// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestObjectsThatGrowWithAPartAreNamedWithTheirLines(t *testing.T) {
	wantLines(t, objectTexts(reporttest.ObjectsSnapshot(), reporttest.Stacks()), []string{
		"train [100] on cuda:0: while what is unexplained grew to 150 MiB it made 11 graph executables at /home/ada/llm/train.py:42 Trainer.step, 1 library (3.00 MiB of code) at Pool::take(unsigned long) src/pool.h:18 (--driver-objects gives their bytes)",
		"server [200] on cuda:0: context, other before attach (600 MiB) includes 5 modules (5.00 MiB of code) at Pool::take(unsigned long) src/pool.h:18, 1 context at Pool::take(unsigned long) src/pool.h:18",
	})
}

func TestLittleThatIsUnexplainedNeedsNoObjects(t *testing.T) {
	s := reporttest.ObjectsSnapshot()
	for i := range s.Balances {
		s.Balances[i].Usage = min(s.Balances[i].Usage, s.Balances[i].Baseline+s.Balances[i].Live+littleUnexplained)
	}
	for _, text := range objectTexts(s, reporttest.Stacks()) {
		if strings.Contains(text, "unexplained") {
			t.Error(text)
		}
	}
}

func TestProcessesWithOnlyAContextShareASentence(t *testing.T) {
	wantLines(t, contextOnlyTexts(reporttest.ObjectsSnapshot(), reporttest.Stacks()), []string{
		"3 processes loader [301, 302, 303]: no GPU memory but a context, made at /home/ada/llm/train.py:42 Trainer.step: 500 MiB to 512 MiB each, 1.48 GiB in all",
		"loader [300]: no GPU memory allocated since the attach; its context and older memory: 700 MiB",
	})
}

func TestManyProcessesWithObjectsTakeFewLines(t *testing.T) {
	var list []objectText
	for i := range uint64(200) {
		list = append(list, objectText{i, fmt.Sprint("process ", i)})
	}
	wantLines(t, mostTexts(list, "more such part"), []string{"process 199", "process 198", "process 197", "process 196", "process 195", "process 194", "194 more such parts (vramprof leaks --json lists all)"})
}
