// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// inputList keeps the inputs of a session.
type inputList []func(ledger.Books)

func (s *inputList) Apply(e *ledger.Event) {
	x := *e
	*s = append(*s, func(b ledger.Books) {
		y := x
		b.Apply(&y)
	})
}

func (s *inputList) Tell(in ledger.Input) {
	if list, ok := in.(ledger.BlockList); ok { // it belongs to the books that get it
		list.Blocks = slices.Clone(list.Blocks)
		*s = append(*s, func(b ledger.Books) {
			b.Tell(ledger.BlockList{PID: list.PID, Blocks: slices.Clone(list.Blocks)})
		})
		return
	}
	*s = append(*s, func(b ledger.Books) { b.Tell(in) })
}

// TestCapturesThatBeginAnywhereInATrainingShowTheSame with holders, also during a walk, and with a
// cache that PyTorch cannot give back.
func TestCapturesThatBeginAnywhereInATrainingShowTheSame(t *testing.T) {
	for name, play := range map[string]func(ledger.Books){"held": PlayHeld, "stuck": PlayStuck} {
		var inputs inputList
		play(&inputs)
		const begin, end = 1000e9, 1060e9
		books := func(l *ledger.Ledger) *ledger.Snapshot {
			s := l.Snapshot(end, time.Time{})
			l.AddStuck(s)
			l.AddPeaks(s)
			s.Opened, s.Host = 0, ""
			return s
		}
		l := ledger.New(ledger.Options{Begin: begin})
		var writers []*capture.Writer
		var files []string
		for i, give := range inputs {
			if i%(len(inputs)/6) == 5 || i == len(inputs)-2 {
				file, err := os.Create(filepath.Join(t.TempDir(), "capture"))
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				w, err := capture.NewWriter(file, capture.Options{Clock: func() uint64 { return begin }, Part: 1})
				if err != nil {
					t.Fatal(err)
				}
				w.Open(l.Opening)
				writers, files = append(writers, w), append(files, file.Name())
			}
			give(l)
			for _, w := range writers {
				give(w)
			}
		}
		want := books(l)
		for i, w := range writers {
			if err := w.End(want); err != nil {
				t.Fatal(err)
			}
			r, err := capture.Open(files[i])
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			again := r.NewLedger()
			if err := r.Play(math.MaxUint64, again); err != nil {
				t.Fatal(err)
			}
			got := books(again)
			for k := range reflect.TypeFor[ledger.Snapshot]().NumField() {
				x, y := fmt.Sprintf("%+v", reflect.ValueOf(*got).Field(k)), fmt.Sprintf("%+v", reflect.ValueOf(*want).Field(k))
				if x != y {
					t.Errorf("%s, capture %d: %s\n%.1000s, want\n%.1000s", name, i, reflect.TypeFor[ledger.Snapshot]().Field(k).Name, x, y)
				}
			}
			if len(r.Warnings()) > 0 {
				t.Errorf("%s, capture %d: warnings %q", name, i, r.Warnings())
			}
		}
	}
}
