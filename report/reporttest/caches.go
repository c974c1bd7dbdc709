// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// Caches is a job that is older than the session, and whose allocator was read: on the default
// stream its list "kept" has each second tensor of 5 MiB in its segments, on another stream
// "frames" one of 2 MiB in each, and a CUDA graph has a pool. A segment is free. Nothing was
// allocated since the attach.
func Caches() *ledger.Snapshot {
	l := ledger.New(ledger.Options{Begin: 1000 * Second, Host: "gpu-box-1"})
	l.Tell(ledger.GPUs{{UUID: OOMGPU, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 2 * GiB}})
	l.Tell(ledger.Process{PID: stuckPID, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: 1000 * Second})
	l.Tell(ledger.Devices{PID: stuckPID, UUIDs: []string{OOMGPU}})
	c := cachesJob{next: 0x7f0000000000, r: &caching.Reading{Arenas: []caching.Arena{{}, {Small: true}, {Stream: 0x55aa10}, {Pool: caching.PoolID{1, 0}}}}}
	for range 40 {
		c.segment(0, 5, 0, -5, 0, 5, 0, -5, 0)
	}
	for range 12 {
		c.segment(2, 2, 1, -18, 0)
	}
	c.segment(0, 19, 0, -1, 0)
	c.segment(0, -20, 0)
	c.segment(1, 1, 2, -1, 0)
	c.segment(3, 8, 2, -12, 0)
	d := caching.Device{Exact: true, Counters: caching.Counters{
		Allocated: caching.Stat{Current: c.allocated, Peak: 3 * GiB}, Reserved: caching.Stat{Current: c.reserved, Peak: 4 * GiB}, Requested: caching.Stat{Current: c.allocated - 40*MiB}, Retries: 2, OutOfMemory: 1,
	}}
	c.r.Devices = []caching.Device{d}
	l.Tell(ledger.UsageReading{Time: 1000 * Second, Usages: []ledger.Usage{{PID: stuckPID, UUID: OOMGPU, Bytes: c.reserved + 520*MiB}}})
	l.Tell(ledger.AllocatorReading{PID: stuckPID, Time: 1001 * Second, Reading: c.r})
	holder := func(path string, entries int) ledger.Holder {
		return ledger.Holder{Path: path, Frames: []string{"__main__", path}, Container: "list", Containers: 1, Entries: entries, Found: true, Retention: retention.Read(0, path)}
	}
	l.Tell(ledger.Walk{PID: stuckPID, Time: 1002 * Second, Holders: []ledger.Holder{holder("kept[*]", 80), holder("frames[*]", 12), holder("graph.pool", 1)}, Storages: c.storages})
	s := l.Snapshot(1002*Second, time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC))
	l.AddStuck(s)
	return s
}

type cachesJob struct {
	r                         *caching.Reading
	next, allocated, reserved uint64
	storages                  []ledger.Storage
}

// segment adds a segment with blocks: their sizes in MiB, negative if free, each followed by its
// holder.
func (c *cachesJob) segment(arena uint16, blocks ...int) {
	s := caching.Segment{Address: c.next, Arena: arena}
	for i := 0; i+1 < len(blocks); i += 2 {
		b := caching.Block{Address: s.Address + s.Size, Size: uint64(max(blocks[i], -blocks[i])) * MiB, Arena: arena}
		b.Requested = b.Size
		if blocks[i] > 0 {
			b.State, b.Older = caching.Active, true
			if arena == 0 && blocks[i] == 5 {
				b.Requested -= MiB / 2
			}
			c.allocated += b.Size
			c.storages = append(c.storages, ledger.Storage{Address: b.Address, Bytes: b.Requested, Holder: uint32(blocks[i+1])})
		}
		c.r.Blocks = append(c.r.Blocks, b)
		s.Size += b.Size
	}
	c.reserved += s.Size
	c.r.Segments = append(c.r.Segments, s)
	c.next += 64 * MiB
}
