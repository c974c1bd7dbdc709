// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/cilium/ebpf"
	"github.com/elastic/go-perf"
	"golang.org/x/sys/unix"
)

// mappingEvents tells when a process anywhere maps executable code
// (PERF_RECORD_MMAP2, one ring per CPU).
type mappingEvents struct{ rings []*perf.Event }

const ringPages = 64

func watchMappings() (*mappingEvents, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count the cpus: %w", err)
	}
	attr := &perf.Attr{Type: perf.SoftwareEvent, Config: uint64(perf.Dummy)}
	attr.Options.Mmap = true
	attr.Options.Mmap2 = true
	m := &mappingEvents{}
	for cpu := range cpus {
		ring, err := perf.Open(attr, perf.AllThreads, cpu, nil)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		if err == nil {
			m.rings = append(m.rings, ring)
			err = ring.MapRingNumPages(ringPages)
			if errors.Is(err, unix.EPERM) { // the rings of all programs of one user are counted together
				err = fmt.Errorf("%w (set sysctl kernel.perf_event_mlock_kb higher, or give it CAP_IPC_LOCK)", err)
			}
		}
		if err != nil {
			m.close()
			return nil, fmt.Errorf("watch mapping events on cpu %d: %w", cpu, err)
		}
	}
	return m, nil
}

// poll reads what has come. It calls mapped for each executable mapping, and
// reports lost records, after which the caller must scan.
func (m *mappingEvents) poll(mapped func(pid uint32, cuda bool)) (lost bool) {
	for _, ring := range m.rings {
		for ring.HasRecord() {
			record, err := ring.ReadRecord(context.Background())
			if err != nil {
				lost = true // an unknown or damaged record
				break
			}
			switch r := record.(type) {
			case *perf.Mmap2Record:
				_, library := layerOf(path.Base(r.Filename))
				mapped(r.Pid, library)
			case *perf.LostRecord:
				lost = true
			}
		}
	}
	return lost
}

func (m *mappingEvents) close() {
	for _, ring := range m.rings {
		ring.Close()
	}
	m.rings = nil
}
