// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/metrics"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Own returns what vramprof itself uses.
func (s *server) Own() metrics.Own {
	own, mapped := ceiling.Own()
	x := metrics.Own{
		Memory: own + mapped, Limit: s.memory.Bytes(), Kernel: s.kernel.bytes(s.tracer),
		Dropped: uint64(s.relief.steps.Load()), Unrecorded: s.ooms.Unrecorded(), AlertsSkipped: s.alerts.Skipped(),
	}
	if !s.tracing.Load() {
		return x
	}
	x.Began = time.Unix(0, s.began.Load())
	rooms, refused, _ := s.tracer.UnwindRooms()
	for _, r := range rooms {
		x.Unwind = append(x.Unwind, metrics.Table(r))
	}
	x.UnwindRefused = refused
	x.JobAge, x.Stalling = s.tracer.JobAge(), len(procfs.Stalls())
	if s.archive != nil {
		stats := s.archive.Stats()
		x.Archive = &metrics.Archive{
			Bytes: uint64(max(stats.Bytes, 0)), Oldest: stats.Oldest, LostEvents: stats.LostEvents, LostTime: stats.LostTime, Failures: stats.Failures,
		}
	}
	return x
}

// watchRefusals logs once a minute, until ctx ends, what had no room.
func (s *server) watchRefusals(ctx context.Context) {
	var tables, alerts uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
		}
		if _, refused, example := s.tracer.UnwindRooms(); refused > tables {
			s.log.Warn("there was no room for unwind tables", "files", refused-tables, "example", example)
			tables = refused
		}
		if skipped := s.alerts.Skipped(); skipped > alerts {
			s.log.Warn("the commands of --on-oom and --on-leak did not run for some events: there were more than --alert-limit, or than the share of a process or user", "events", skipped-alerts)
			alerts = skipped
		}
	}
}

// kernelMemory is the memory of the tracer's BPF maps, as the kernel counts it.
type kernelMemory struct {
	mu    sync.Mutex // guards what follows
	read  time.Time
	total uint64
}

const kernelMemoryAge = time.Minute // there are some hundred maps

func (k *kernelMemory) bytes(t *tracer.Tracer) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); k.read.IsZero() || now.Sub(k.read) >= kernelMemoryAge {
		k.read, k.total = now, mapBytes("/proc/self/fdinfo")+t.UnwindTableBytes()
	}
	return k.total
}

// noteKernelMemory reports what tracing takes of the kernel's memory now.
func (s *session) noteKernelMemory() {
	tables := s.tracer.UnwindTableBytes()
	s.config.Note(fmt.Sprintf("kernel memory: maps take %s, and unwind tables %s more", format.Bytes(mapBytes("/proc/self/fdinfo")), format.Bytes(tables)))
}

// mapBytes sums the lines "memlock:\t4096" of the maps among the open files. Several files may be of
// one map, which "map_id:\t7" tells.
func mapBytes(dir string) (total uint64) {
	files, _ := os.ReadDir(dir)
	seen := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(dir + "/" + f.Name())
		if err != nil || !strings.Contains(string(text), "map_type:") {
			continue
		}
		id, bytes := "", uint64(0)
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, "memlock:"); ok {
				bytes, _ = strconv.ParseUint(strings.TrimSpace(n), 10, 63)
			} else if n, ok := strings.CutPrefix(line, "map_id:"); ok {
				id = n
			}
		}
		if id == "" || !seen[id] {
			seen[id] = true
			total += bytes
		}
	}
	return total
}
