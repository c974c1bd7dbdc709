// SPDX-License-Identifier: Apache-2.0

package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestEveryReasonOfALossHasWords(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../tracer/ledger/losses.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.BasicLit); ok && v.Kind == token.STRING {
			code, _ := strconv.Unquote(v.Value)
			if found++; !strings.HasPrefix(wordsFor(code, lossReasons), "because ") {
				t.Errorf("%q has no words", code)
			}
		}
		return true
	})
	if found != len(lossReasons) {
		t.Errorf("the ledger has %d reasons, the report words for %d", found, len(lossReasons))
	}
}

func TestLossesOfOlderCapturesKeepTheirWords(t *testing.T) {
	const why = "because the tide was high\x1b[2J"
	s := &ledger.Snapshot{Stats: ledger.Stats{Lost: 5, LostFor: map[string]uint64{why: 2, ledger.LostNoMemory: 3}}}
	var texts []string
	for _, d := range Losses(s) {
		texts = append(texts, d.Text)
	}
	got := strings.Join(texts, "\n")
	if !strings.Contains(got, "2 events were lost because the tide was high") || strings.ContainsRune(got, '\x1b') ||
		!strings.Contains(got, "3 events were lost because the kernel had no memory") {
		t.Errorf("%q", got)
	}
}
