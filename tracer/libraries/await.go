// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"path"
	"time"

	"github.com/elastic/go-perf"
)

// awaitPause is the shortest time between two looks at new mappings: other programs start all the
// time.
const awaitPause = 250 * time.Millisecond

// Await returns when a process maps a library of CUDA, and at once if one does already. It needs no
// BPF programs, and 0.3 MB of rings per CPU. It returns the error of ctx when that ends.
func Await(ctx context.Context) error {
	m, err := WatchMappings()
	if err != nil {
		return err
	}
	defer m.Close()
	waiting, found := context.WithCancel(ctx)
	defer found()
	look := func() {
		var list []Mapped
		if list, err = readAllMaps(); err != nil || len(list) > 0 {
			found()
		}
	}
	if look(); waiting.Err() == nil {
		m.Tell(waiting, awaitPause, func() {
			changed, failed := m.Hotplug()
			if err = failed; err != nil {
				found()
			}
			if m.mapsCUDA(found) || changed {
				look()
			}
		})
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// mapsCUDA calls found if a record is of a library of CUDA, and reports whether records were lost.
func (m *MappingEvents) mapsCUDA(found func()) (lost bool) {
	return m.read(func(r *perf.Mmap2Record) {
		if layer, library := LayerOf(path.Base(r.Filename)); library && layer.IsCUDA() {
			found()
		}
	})
}
