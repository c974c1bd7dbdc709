// SPDX-License-Identifier: Apache-2.0

package libraries

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

// MappingEvents reports when any process maps executable code (PERF_RECORD_MMAP2, one ring for each
// online CPU).
//
// One goroutine calls Hotplug and Poll, which never wait, so it may read other rings too. Another
// one may wait in Tell meanwhile: it uses only the two file descriptors, which are constant. Hence
// there is no lock. Close must follow the end of both.
type MappingEvents struct {
	attr   *perf.Attr
	rings  map[int]*perf.Event // by CPU
	ready  int                 // an epoll of the rings and of end
	end    int                 // an eventfd that ends Tell
	online string              // the contents of onlineCPUs for which the rings were opened
	looked time.Time           // the last look at onlineCPUs
}

// onlineCPUs is the kernel's list of the online CPUs, such as "0-3,6".
const onlineCPUs = "/sys/devices/system/cpu/online"

// RingPages returns the size of a ring in pages, without the page of its positions. The more CPUs
// there are, the fewer of all mappings each one makes: rings take at most 4 MiB together on 64
// CPUs. The smallest one has space for some 450 mappings between two polls.
func RingPages(cpus int) int {
	const most, least, together = 64, 16, 1024
	pages := most
	for pages > least && pages*cpus > together {
		pages /= 2 // the kernel takes powers of two
	}
	return pages
}

// hotplugInterval is the time between two looks at onlineCPUs.
const hotplugInterval = time.Second

// WatchMappings opens a ring for each online CPU.
func WatchMappings() (*MappingEvents, error) {
	attr := &perf.Attr{Type: perf.SoftwareEvent, Config: uint64(perf.Dummy)}
	attr.Options.Mmap = true
	attr.Options.Mmap2 = true
	attr.SetWakeupWatermark(1) // byte: each record ends the wait
	m := &MappingEvents{attr: attr, rings: map[int]*perf.Event{}, ready: -1, end: -1, looked: time.Now()}
	if err := m.open(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *MappingEvents) open() (err error) {
	if m.ready, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("watch mapping events: create an epoll: %w", err)
	}
	if m.end, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("watch mapping events: create an eventfd: %w", err)
	}
	if err := m.waitFor(m.end); err != nil {
		return err
	}
	list, err := os.ReadFile(onlineCPUs)
	if err != nil {
		return fmt.Errorf("list the CPUs: %w", err)
	}
	return m.follow(string(list))
}

func (m *MappingEvents) waitFor(fd int) error {
	if err := unix.EpollCtl(m.ready, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("watch mapping events: add to the epoll: %w", err)
	}
	return nil
}

func (m *MappingEvents) wakesWith(ring *perf.Event) error {
	fd, err := ring.FD()
	if err != nil {
		return err
	}
	return m.waitFor(fd)
}

// Tell calls come when code was mapped, at most once per pause, until ctx ends.
func (m *MappingEvents) Tell(ctx context.Context, pause time.Duration, come func()) {
	written := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(m.end, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(written)
	})
	defer func() {
		if !stop() {
			<-written // not into another file that gets the same descriptor
		}
	}()
	var some [16]unix.EpollEvent // the next call returns the others
	for ctx.Err() == nil {
		if _, err := unix.EpollWait(m.ready, some[:], -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return // Poll still reads the records, but later
		}
		come()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// follow opens rings for the CPUs of a list and closes all others. The kernel removes the event of
// a CPU that goes offline: if the CPU comes back, it needs a new one.
func (m *MappingEvents) follow(list string) error {
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
			continue // it went offline meanwhile
		}
		if err == nil {
			m.rings[cpu] = ring
			err = ring.MapRingNumPages(RingPages(len(now)))
		}
		if err == nil {
			err = m.wakesWith(ring)
		}
		if err != nil {
			return fmt.Errorf("watch mapping events on CPU %d: %w", cpu, err)
		}
	}
	m.online = list
	return nil
}

// OnlineCPUs returns the number of online CPUs.
func OnlineCPUs() (int, error) {
	list, err := os.ReadFile(onlineCPUs)
	if err != nil {
		return 0, err
	}
	cpus, err := cpusOf(string(list))
	return len(cpus), err
}

// cpusOf parses a list such as "0-3,6".
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
			return nil, fmt.Errorf("list of CPUs %q: not understood", list)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// Hotplug opens and closes rings as CPUs go online and offline, at most once per second. It reports
// whether the list changed: then the caller must scan, because mappings made meanwhile were missed.
func (m *MappingEvents) Hotplug() (changed bool, err error) {
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

// Poll reads the records in the rings and calls mapped for each executable mapping; cuda is true if
// the file's name is that of a library of CUDA or PyTorch. Poll reports whether records were lost:
// then the caller must scan.
func (m *MappingEvents) Poll(mapped func(pid uint32, cuda bool)) (lost bool) {
	return m.read(func(r *perf.Mmap2Record) {
		_, library := LayerOf(path.Base(r.Filename))
		mapped(r.Pid, library)
	})
}

// read takes all records out of the rings, and reports whether some were lost.
func (m *MappingEvents) read(mapped func(*perf.Mmap2Record)) (lost bool) {
	for _, ring := range m.rings {
		for ring.HasRecord() {
			record, err := ring.ReadRecord(context.Background())
			if err != nil {
				lost = true // an unknown or damaged record
				break
			}
			switch r := record.(type) {
			case *perf.Mmap2Record:
				mapped(r)
			case *perf.LostRecord:
				lost = true
			}
		}
	}
	return lost
}

// Mute ends the calls of Tell's come by new mappings. Poll still reads them.
func (m *MappingEvents) Mute() error {
	for _, ring := range m.rings {
		fd, err := ring.FD()
		if err == nil {
			err = unix.EpollCtl(m.ready, unix.EPOLL_CTL_DEL, fd, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes the rings and the file descriptors.
func (m *MappingEvents) Close() {
	for _, ring := range m.rings {
		ring.Close()
	}
	m.rings = nil
	for _, fd := range []*int{&m.ready, &m.end} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}
