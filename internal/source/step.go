// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/tracer/capture"
)

// stepTime returns when a step held most: of the process whose steps hold most, in ns of the
// capture's clock.
func stepTime(r *capture.Reader, number uint64) (uint64, error) {
	last, err := r.Snapshot(r.End())
	if err != nil {
		return 0, err
	}
	found, err := replay.Steps(r, last, steps.MaxEvents)
	if err != nil {
		return 0, err
	}
	x := found.Most()
	if x == nil {
		text := found.SkippedText()
		if text == "" {
			text = "no steps of a training are in the capture"
		}
		return 0, fault.New(fault.Failed, errors.New(text))
	}
	at, ok := x.HighTime(number)
	switch {
	case ok:
		return at, nil
	case x.Step(number) != nil:
		return 0, fault.Usage(fmt.Errorf("step %d is not known by itself: the capture has %d steps, which are joined", number, x.Count))
	}
	return 0, fault.Usage(fmt.Errorf("there is no step %d: the capture has %d", number, x.Count))
}
