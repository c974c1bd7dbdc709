// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elastic/go-perf"
	"golang.org/x/sys/unix"
)

// mappingEvents tells when a process anywhere maps executable code
// (PERF_RECORD_MMAP2, one ring per CPU that is online).
type mappingEvents struct {
	attr   *perf.Attr
	rings  map[int]*perf.Event // by cpu
	online string              // the list of cpus for which they were opened
	looked time.Time
}

// onlineCPUs is where the kernel lists them, as "0-3,6".
const onlineCPUs = "/sys/devices/system/cpu/online"

// hotplugInterval is how often the list is looked at.
const hotplugInterval = time.Second

func watchMappings() (*mappingEvents, error) {
	attr := &perf.Attr{Type: perf.SoftwareEvent, Config: uint64(perf.Dummy)}
	attr.Options.Mmap = true
	attr.Options.Mmap2 = true
	m := &mappingEvents{attr: attr, rings: map[int]*perf.Event{}, looked: time.Now()}
	list, err := os.ReadFile(onlineCPUs)
	if err != nil {
		return nil, fmt.Errorf("list the cpus: %w", err)
	}
	if err := m.follow(string(list)); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// follow has rings for the cpus of a list, and no others. The kernel takes the event of a cpu that goes offline
// away for good: one that comes back needs a new one.
func (m *mappingEvents) follow(list string) error {
	now, err := cpusOf(list)
	if err != nil {
		return err
	}
	for cpu, ring := range m.rings {
		if !slices.Contains(now, cpu) {
			ring.Close()
			delete(m.rings, cpu)
		}
	}
	for _, cpu := range now {
		if m.rings[cpu] != nil {
			continue
		}
		ring, err := perf.Open(m.attr, perf.AllThreads, cpu, nil)
		if errors.Is(err, unix.ENODEV) {
			continue // it has gone offline meanwhile
		}
		if err == nil {
			m.rings[cpu] = ring
			err = ring.MapRingNumPages(64)
		}
		if err != nil {
			return fmt.Errorf("watch mapping events on cpu %d: %w", cpu, err)
		}
	}
	m.online = list
	return nil
}

// cpusOf reads a list such as "0-3,6".
func cpusOf(list string) (cpus []int, err error) {
	const most = 1 << 13 // the kernel's NR_CPUS
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 32)
		last, err2 := strconv.ParseUint(to, 10, 32)
		if err = errors.Join(err, err2); err != nil || first > last || last >= most {
			return nil, fmt.Errorf("list of cpus %q: not understood", list)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// hotplug follows the cpus that come and go. It returns true when some did: the caller must scan, since
// mappings that were made meanwhile were not told.
func (m *mappingEvents) hotplug() (changed bool, err error) {
	if time.Since(m.looked) < hotplugInterval {
		return false, nil
	}
	m.looked = time.Now()
	list, err := os.ReadFile(onlineCPUs)
	if err != nil || string(list) == m.online {
		return false, nil
	}
	return true, m.follow(string(list))
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
