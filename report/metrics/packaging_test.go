// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile(`\b(?:\w+:)?vramprof_[a-z_]+(?::\w+)?\b`)

// TestRulesDashboardAndDocsNameOnlyWhatExists compares the names in packaging and docs with
// Families, and with what the rules record.
func TestRulesDashboardAndDocsNameOnlyWhatExists(t *testing.T) {
	rules := read(t, "../../packaging/prometheus/vramprof.rules.yml")
	exists := map[string]bool{}
	for i := range Families {
		exists[Families[i].Name] = true
	}
	for _, m := range regexp.MustCompile(`record: (\S+)`).FindAllStringSubmatch(rules, -1) {
		exists[m[1]] = true
	}
	for _, path := range []string{"prometheus/vramprof.rules.yml", "prometheus/vramprof.rules.test.yml", "grafana/vramprof.json", "../docs/metrics.md"} {
		for _, name := range metricName.FindAllString(read(t, "../../packaging/"+path), -1) {
			if !exists[name] && !strings.HasSuffix(name, "_") {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRulesHoldUnderPromtool has promtool check the rules and run their tests.
func TestRulesHoldUnderPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (package prometheus)")
	}
	for _, arguments := range [][]string{{"check", "rules", "vramprof.rules.yml"}, {"test", "rules", "vramprof.rules.test.yml"}} {
		cmd := exec.Command(promtool, arguments...)
		cmd.Dir = "../../packaging/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", arguments, err, out)
		}
	}
}

type dashboard struct {
	UID        string
	Panels     []dashboardPanel
	Templating struct {
		List []struct{ Name, Type string }
	}
}

type dashboardPanel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct{ Expr, RefID string }
}

// TestDashboardIsWellFormed finds what Grafana would silently show wrong: panels with one id, on
// top of each other, without a query, or with a data source of another installation.
func TestDashboardIsWellFormed(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "../../packaging/grafana/vramprof.json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID != "vramprof" {
		t.Errorf("its uid is %q", d.UID)
	}
	variables := map[string]bool{}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	for _, name := range []string{"datasource", "instance", "gpu", "namespace", "pod"} {
		if !variables[name] {
			t.Errorf("there is no variable %s", name)
		}
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for i := range d.Panels {
		p := &d.Panels[i]
		if ids[p.ID] {
			t.Errorf("%s: id %d is used twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if over := taken[[2]int{x, y}]; over != "" || x >= 24 {
					t.Fatalf("%s lies on %q at %d, %d", p.Title, over, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("%s: %d queries, data source %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
	}
}
