// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/steps"
)

// TestLeaksGrowByStep: 80 MiB a second are 80 MiB a step of a second, and nothing is said without
// steps.
func TestLeaksGrowByStep(t *testing.T) {
	s, st := reporttest.Held(), reporttest.HeldStacks()
	for name, write := range map[string]func(*bytes.Buffer, report.Options) error{
		"brief":   func(b *bytes.Buffer, o report.Options) error { return WriteLeaksBrief(b, s, st, o, Screen{Width: 110}) },
		"verbose": func(b *bytes.Buffer, o report.Options) error { return WriteLeaks(b, s, st, o, Screen{Width: 110}) },
	} {
		var with, without bytes.Buffer
		if err := write(&with, report.Options{Steps: reporttest.Steps()}); err != nil {
			t.Fatal(err)
		}
		if err := write(&without, report.Options{}); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(with.String()), " ")
		for _, want := range []string{
			"MiB a step, +", // beside the rate per minute
			"Steps of python3 [4242]: 57 steps of 1.0s (55.6 a minute), peak of tensors 36.7 GiB in step 41 of 57, in backward; tensors grow 12.0 MiB a step",
		} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: not %q: %s", name, want, with.String())
			}
		}
		if strings.Contains(without.String(), "a step") {
			t.Errorf("%s: steps without any: %s", name, without.String())
		}
	}
}

// TestLongCapturesSayThatNoStepsWereLookedFor in explain.
func TestLongCapturesSayThatNoStepsWereLookedFor(t *testing.T) {
	var out bytes.Buffer
	if err := WriteExplain(&out, reporttest.Explained(), nil, nil, report.Options{Steps: &steps.Session{Skipped: 31e6}}, Screen{Width: 200}); err != nil {
		t.Fatal(err)
	}
	if want := "! Steps were not looked for: the capture has 31 million events. vramprof explain looks in up to 20 million."; !strings.Contains(out.String(), want) {
		t.Error(out.String())
	}
}

// TestSummariesHaveTheStepOfThePeak in one line.
func TestSummariesHaveTheStepOfThePeak(t *testing.T) {
	var out bytes.Buffer
	if err := WriteSummary(&out, reporttest.Explained(), reporttest.HeldStacks(), report.Options{Steps: reporttest.Steps()}, Screen{Width: 160}); err != nil {
		t.Fatal(err)
	}
	if want := "Steps: 57 steps of 1.0s (55.6 a minute), peak of tensors 36.7 GiB in step 41 of 57, in backward; tensors grow 12.0 MiB a step"; !strings.Contains(out.String(), want) {
		t.Error(out.String())
	}
}
