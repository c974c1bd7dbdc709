// SPDX-License-Identifier: Apache-2.0

package sums_test

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	googleprofile "github.com/google/pprof/profile"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/internal/sums"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/balance"
	"github.com/vramprof/vramprof/report/export"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/html"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/metrics"
	reportprofile "github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// overbooked returns a session whose books have so much more than NVML's figure of the first
// process, and what NVML reports for it.
func overbooked(t *testing.T, beyond uint64) (s *ledger.Snapshot, usage uint64) {
	t.Helper()
	s = reporttest.TorchSnapshot()
	s.Balances[0].Usage -= beyond - s.Parts()[0].Beyond()
	if got := s.Parts()[0].Beyond(); got != beyond {
		t.Fatalf("%d bytes are beyond NVML's figure, want %d", got, beyond)
	}
	for i := range s.Balances {
		usage += s.Balances[i].Usage
	}
	return s, usage
}

// TestNoShareIsNegative: where the books have more than NVML's figure, each format has the same
// surplus under the same name, no figure below 0, and sums that are NVML's figure; whether the
// surplus fits what is deduced from that figure, or only what lines of code allocated.
func TestNoShareIsNegative(t *testing.T) {
	for name, beyond := range map[string]uint64{
		"a page": 2 << 20, "more than the context": 600 << 20, "more than what was before": 30 << 30, "nearly all": 36 << 30,
	} {
		t.Run(name, func(t *testing.T) {
			s, usage := overbooked(t, beyond)
			st := reporttest.TorchStacks()
			sums.CheckExact(t, s)
			parts := s.Parts()
			var all uint64 // beyond NVML's figure
			for i := range parts {
				all += parts[i].Beyond()
			}
			t.Run("balance", func(t *testing.T) {
				var sum uint64
				for _, b := range balance.Of(s, nil) {
					for i := range b.Rows {
						if b.Rows[i].Plane != balance.Others {
							sum += b.Rows[i].Bytes
						}
					}
				}
				if sum != usage {
					t.Errorf("the rows of traced processes have %d bytes, NVML %d", sum, usage)
				}
			})
			t.Run("explain", func(t *testing.T) { explained(t, purpose.Of(s, st), parts) })
			t.Run("pprof", func(t *testing.T) { inPprof(t, s, usage, beyond) })
			t.Run("folded", func(t *testing.T) {
				var b bytes.Buffer
				if err := export.Folded(&b, s, st, export.FoldedOptions{}); err != nil {
					t.Fatal(err)
				}
				var sum uint64
				for line := range strings.Lines(b.String()) {
					n, err := strconv.ParseUint(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 10, 64)
					if sum += n; err != nil || n == 0 {
						t.Errorf("line %q: %v", line, err)
					}
				}
				if sum != usage {
					t.Errorf("the lines have %d bytes, NVML %d", sum, usage)
				}
			})
			t.Run("json", func(t *testing.T) {
				var b bytes.Buffer
				if err := reportjson.WriteLeaks(&b, s, st, report.Options{}); err != nil {
					t.Fatal(err)
				}
				if r := reportjson.NewLeaks(s, st, report.Options{}); r.Parts[0].BeyondBytes != beyond || r.Parts[0].UsageBytes != s.Balances[0].Usage {
					t.Errorf("%+v", r.Parts[0])
				}
				noneNegative(t, "planes", b.Bytes())
				noneNegative(t, "parts", b.Bytes())
			})
			t.Run("metrics", func(t *testing.T) { inMetrics(t, s, usage, all) })
			t.Run("page", func(t *testing.T) {
				list, err := html.Sections(html.Input{Snapshot: s, Stacks: st})
				if err != nil {
					t.Fatal(err)
				}
				page := html.Join(list)
				var got struct {
					Parts   struct{ Rows []struct{ Beyond uint64 } }
					Entries struct{ Live []int64 }
				}
				if err := json.Unmarshal(page, &got); err != nil || got.Parts.Rows[0].Beyond != beyond {
					t.Errorf("%v: %+v", err, got.Parts)
				}
				for i, n := range got.Entries.Live {
					if n < 0 {
						t.Errorf("entry %d has %d bytes", i, n)
					}
				}
				noneNegative(t, "parts", page)
			})
			t.Run("text", func(t *testing.T) {
				var summary, once bytes.Buffer
				if err := text.WriteSummary(&summary, s, st, report.Options{}, text.Screen{}); err != nil {
					t.Fatal(err)
				}
				if err := tui.Once(&once, tui.Moment{Snapshot: s, Stacks: st}, tui.Options{}, 120); err != nil {
					t.Fatal(err)
				}
				_, row, _ := strings.Cut(summary.String(), "\n"+report.BeyondNVML+" ")
				if want := format.Bytes(beyond); !strings.HasPrefix(strings.TrimSpace(row), want) {
					t.Errorf("no row has %s:\n%s", want, &summary)
				}
				for _, page := range []string{summary.String(), once.String()} {
					if found := regexp.MustCompile(`(^|\s)-\d\S* [KMGT]?i?B`).FindString(page); found != "" {
						t.Errorf("%q is negative:\n%s", found, page)
					}
				}
			})
		})
	}
}

// TestADifferenceHasNoUnexplainedSurplus: what is less in a difference is less of something, so the
// surplus of one side makes rows before the attach smaller, and no row of its own.
func TestADifferenceHasNoUnexplainedSurplus(t *testing.T) {
	a, least := overbooked(t, 12<<20)
	b, most := overbooked(t, 112<<20)
	st := reporttest.TorchStacks()
	var sum int64
	for _, x := range reportprofile.Diff(reportprofile.New(a, st), reportprofile.New(b, st)).Lines {
		if sum += x.After - x.Before; x.Before < 0 || x.After < 0 || x.Frame.Function == report.MarkUnexplained {
			t.Errorf("%+v", x)
		}
	}
	if want := int64(most) - int64(least); sum != want || want != -100<<20 {
		t.Errorf("the lines differ by %d bytes, want %d", sum, want)
	}
}

func explained(t *testing.T, list []purpose.Balance, parts []ledger.Part) {
	t.Helper()
	for i := range list {
		b, x := &list[i], &parts[i]
		if b.Beyond.Sum() != x.Beyond() || uint64(b.Bytes) != report.PartUsage(x) {
			t.Errorf("%d bytes and %d beyond, want %d and %d", b.Bytes, b.Beyond.Sum(), report.PartUsage(x), x.Beyond())
		}
		for k := range b.Rows {
			if b.Rows[k].Bytes < 0 {
				t.Errorf("row %+v", b.Rows[k])
			}
		}
	}
}

func inPprof(t *testing.T, s *ledger.Snapshot, usage, beyond uint64) {
	t.Helper()
	var b bytes.Buffer
	if err := reportprofile.Write(&b, s, reporttest.TorchStacks()); err != nil {
		t.Fatal(err)
	}
	p, err := googleprofile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, x := range p.Sample {
		for i, n := range x.Value {
			if n < 0 {
				t.Errorf("a sample of %s has %d: %v", p.SampleType[i].Type, n, x.Label)
			}
		}
		sum += x.Value[3]
	}
	if want := format.Bytes(beyond) + " " + report.BeyondNVML; sum != int64(usage) || !strings.Contains(strings.Join(p.Comments, "\n"), want) {
		t.Errorf("%d bytes, want %d and %q in %q", sum, usage, want, p.Comments)
	}
}

func inMetrics(t *testing.T, s *ledger.Snapshot, usage, beyond uint64) {
	t.Helper()
	c := metrics.New(metrics.Options{})
	c.Set(s, metrics.Own{})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if got[f.GetName()] += m.GetGauge().GetValue(); m.GetGauge().GetValue() < 0 {
				t.Errorf("%s is %v", f.GetName(), m)
			}
		}
	}
	if got["vramprof_memory_bytes"] != float64(usage) || got["vramprof_overbooked_bytes"] != float64(beyond) {
		t.Errorf("%.0f bytes, %.0f beyond; want %d and %d", got["vramprof_memory_bytes"], got["vramprof_overbooked_bytes"], usage, beyond)
	}
}

// noneNegative tests that a part of a JSON object has no number below 0.
func noneNegative(t *testing.T, key string, data []byte) {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil || all[key] == nil {
		t.Fatalf("%s: %v", key, err)
	}
	var look func(at string, x any)
	look = func(at string, x any) {
		switch x := x.(type) {
		case map[string]any:
			for k, v := range x {
				look(at+"."+k, v)
			}
		case []any:
			for i, v := range x {
				look(at+"["+strconv.Itoa(i)+"]", v)
			}
		case float64:
			if math.Signbit(x) && x != -1 { // -1: unknown, or the end
				t.Errorf("%s is %.0f", at, x)
			}
		}
	}
	look(key, all[key])
}
