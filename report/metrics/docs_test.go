// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	document   = "../../docs/metrics.md"
	tableBegin = "<!-- begin of the generated table -->\n"
	tableEnd   = "<!-- end of the generated table -->\n"
)

// TestDocsListAllMetrics compares the table of docs/metrics.md with Families. -update writes it.
func TestDocsListAllMetrics(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	front, rest, begins := strings.Cut(string(text), tableBegin)
	_, back, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatal("docs/metrics.md has no table")
	}
	want := front + tableBegin + docTable() + tableEnd + back
	if flag.Lookup("update").Value.String() == "true" { // of reporttest
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("the table of docs/metrics.md differs from Families: run go test ./report/metrics -run Docs -update")
	}
}

func docTable() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for i := range Families {
		f := &Families[i]
		kind, list := "gauge", []string{}
		if f.Type == prometheus.CounterValue {
			kind = "counter"
		}
		own := f.Labels
		if len(own) >= len(rowLabels) && slices.Equal(own[:len(rowLabels)], rowLabels) {
			list, own = append(list, "*workload*"), own[len(rowLabels):]
		}
		for _, name := range own {
			list = append(list, "`"+name+"`")
		}
		b.WriteString("| `" + f.Name + "` | " + kind + " | " + strings.Join(list, ", ") + " | " + f.Help + " |\n")
	}
	return b.String()
}
