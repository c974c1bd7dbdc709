// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestReportsSayWhatSleepsAndWhatStayed(t *testing.T) {
	s, st := reporttest.AsleepSnapshot(), reporttest.TorchStacks()
	var leaks, summary, table bytes.Buffer
	if err := WriteLeaks(&leaks, s, st, report.Options{}, Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if err := WriteSummary(&summary, s, st, report.Options{}, Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(&table, s, st, report.Options{}, Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	const said = "60.0 GiB of tensors are asleep: PyTorch counts them, but their memory was unmapped\n"
	for _, c := range []struct {
		where string
		text  *bytes.Buffer
		want  string
	}{
		{"leaks", &leaks, "\nLive GPU memory: 2.00 GiB in 1 allocation from 1 site\nnot counted, as PyTorch keeps it for later tensors: 1.00 GiB of cache\n\n1.  2.00 GiB  /home/ada/llm/optim.py:31 Adam.init_state\n"},
		{"leaks", &leaks, "\n" + said + "\n-   60.0 GiB  /home/ada/llm/model.py:88 Block.forward\n    of 60.0 GiB, vllm [7], tensors on cuda:0\n"},
		{"summary", &summary, "\nLargest sites of what stayed on the GPU\n\n1.  2.00 GiB  /home/ada/llm/optim.py:31 Adam.init_state\n"},
		{"summary", &summary, said},
		{"summary", &summary, "; 60.0 GiB of tensors are"},
		{"table", &table, " 2.00 GiB  2.00 GiB          1  vllm [7]  tensors     cuda:0  …e/ada/llm/optim.py:31 Adam.init_state\n"},
		{"table", &table, " 60.0 GiB       0 B          0  vllm [7]  asleep      cuda:0  …ome/ada/llm/model.py:88 Block.forward\n"},
	} {
		if !strings.Contains(c.text.String(), c.want) {
			t.Errorf("%s: no %q in\n%s", c.where, c.want, c.text)
		}
	}
	r := json.NewLeaks(s, st, report.Options{})
	if r.LiveBytes != 2<<30 || r.AsleepBytes != 60<<30 || r.Tensors[0].AsleepBytes != 60<<30 || len(r.Sites) != 1 || r.Asleep[0].AsleepBytes != 60<<30 {
		t.Errorf("JSON: %d bytes live, %d asleep, tensors %+v", r.LiveBytes, r.AsleepBytes, r.Tensors)
	}
}
