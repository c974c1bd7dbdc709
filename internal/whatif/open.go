// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/filekind"
	"github.com/vramprof/vramprof/internal/source"
)

// Files are options of reading files.
type Files struct {
	source.Options
	Torch string // the version of PyTorch that wrote a snapshot, which does not name it
}

// Open reads what can be replayed of a capture, or of a memory snapshot of PyTorch. Call done when
// the jobs are no longer used.
func (o Files) Open(name string) (jobs []*Job, done func(), err error) {
	if filekind.Of(name).Class == filekind.Pickle {
		jobs, err = ReadSnapshot(name, o.Torch, o.Unlimited)
		return jobs, func() {}, err
	}
	if o.Torch != "" {
		return nil, nil, fmt.Errorf("a version of PyTorch is for memory snapshots: %s names it", name)
	}
	r, done, err := o.Options.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if jobs, err = readCapture(r); err != nil {
		done()
		return nil, nil, err
	}
	return jobs, done, nil
}

// OpenBoth opens a file as Open, and compares its jobs with those of a second one, if there is one.
func (o Files) OpenBoth(names ...string) ([]*Job, func(), error) {
	jobs, first, err := o.Open(names[0])
	if err != nil || len(names) == 1 {
		return jobs, first, err
	}
	others, second, err := o.Open(names[1])
	if err != nil {
		first()
		return nil, nil, err
	}
	done := func() { first(); second() }
	if err := Pair(jobs, others); err != nil {
		done()
		return nil, nil, fmt.Errorf("compare %s: %w", names[1], err)
	}
	return jobs, done, nil
}
