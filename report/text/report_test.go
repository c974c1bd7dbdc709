// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestText(t *testing.T) {
	for _, width := range []int{80, 120} {
		t.Run(fmt.Sprintf("leaks%d", width), func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteLeaks(&b, reporttest.Snapshot(), reporttest.Stacks(), report.Options{}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, b.String(), width)
			reporttest.Golden(t, fmt.Sprintf("leaks%d.txt", width), b.Bytes())
		})
		t.Run(fmt.Sprintf("summary%d", width), func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteSummary(&b, reporttest.Snapshot(), reporttest.Stacks(), report.Options{Top: 3}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, b.String(), width)
			reporttest.Golden(t, fmt.Sprintf("summary%d.txt", width), b.Bytes())
		})
	}
}

func TestColourOnlyWhereAskedFor(t *testing.T) {
	for _, color := range []bool{false, true} {
		var b bytes.Buffer
		if err := WriteLeaks(&b, reporttest.Snapshot(), reporttest.Stacks(), report.Options{}, Screen{Color: color}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "\x1b"); got != color {
			t.Errorf("color %v: escape sequences %v", color, got)
		}
	}
}

func TestNothingTraced(t *testing.T) {
	s := ledger.New(ledger.Options{}).Snapshot(reporttest.Second, time.Unix(0, 0))
	var b bytes.Buffer
	if err := errors.Join(
		WriteLeaks(&b, s, reporttest.StackMap{}, report.Options{}, Screen{}),
		WriteSummary(&b, s, reporttest.StackMap{}, report.Options{}, Screen{}),
		json.WriteLeaks(&b, s, reporttest.StackMap{}, report.Options{}),
		profile.Write(&b, s, reporttest.StackMap{}),
	); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"No GPU memory allocated since the attach is live", "No allocation was seen", `"sites": []`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// TestMemoryOfUnknownAgeIsNotOlderThanAnything: a site has no oldest allocation where the sample
// has none that lives, and a clock that begins with the machine must not stand in for it.
func TestMemoryOfUnknownAgeIsNotOlderThanAnything(t *testing.T) {
	s := reporttest.TorchSnapshot()
	n := slices.IndexFunc(s.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && x.Device == 0 })
	s.Sites[n].Oldest = 0
	s.Processes[1].Exe = "/opt/other" // of another job: its row has an age
	stack, all := s.Sites[n].Stack, len(report.Leaks(s, report.Options{}))
	has := func(list []ledger.Site) bool {
		return slices.ContainsFunc(list, func(x ledger.Site) bool {
			return x.Stack == stack && x.Process == 0 && x.Kind == ledger.Tensor && x.Device == 0
		})
	}
	if list := report.Leaks(s, report.Options{}); !has(list) {
		t.Errorf("without --older the site is not listed")
	}
	if list := report.Leaks(s, report.Options{Older: time.Second}); has(list) || len(list) != all-1 {
		t.Errorf("older than 1s: %d sites, unknown age among them: %v; want the %d others", len(list), has(list), all-1)
	}
	if list := report.Leaks(s, report.Options{Older: 20 * time.Minute}); len(list) != 0 {
		t.Errorf("%d sites are older than 20m in a session of 100s", len(list))
	}
	var leaks, page bytes.Buffer
	if err := errors.Join(
		WriteLeaks(&leaks, s, reporttest.TorchStacks(), report.Options{Older: time.Second}, Screen{}),
		WriteLeaks(&leaks, s, reporttest.TorchStacks(), report.Options{}, Screen{}),
		json.WriteLeaks(&page, s, reporttest.TorchStacks(), report.Options{}),
	); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not counted, as its age is unknown: 1,860 allocations, 9.08 GiB", "age unknown"} {
		if !strings.Contains(strings.Join(strings.Fields(leaks.String()), " "), want) {
			t.Errorf("%q is missing in\n%s", want, leaks.String())
		}
	}
	if !strings.Contains(page.String(), `"oldest_ns": 0,`) {
		t.Error("the JSON has an age")
	}
}
