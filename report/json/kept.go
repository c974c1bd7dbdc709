// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// KeptReport is who keeps the memory of a process, as of the latest walk of its memory.
type KeptReport struct {
	Process   int                `json:"process"` // index into processes
	PID       uint32             `json:"pid"`
	WalkNS    uint64             `json:"walk_ns"`            // when the walk was, since the session began
	Failure   string             `json:"failure,omitempty"`  // why it found nothing
	Holders   []KeptHolderReport `json:"holders"`            // largest first, then what no holder was found for; without driver_bytes they add up to the allocators
	BetweenNS uint64             `json:"between_ns"`         // time between the first walk and this one; 0: there was one
	Grown     []KeptGrownReport  `json:"grown"`              // since the first walk, fastest first
	Passing   []KeptGrownReport  `json:"passing,omitempty"`  // likewise, but of memory that comes and goes
	Unclear   []KeptGrownReport  `json:"unclear,omitempty"`  // likewise, but of memory that may come and go
	Problems  []string           `json:"problems,omitempty"` // what the walk could not read, and doubts
}

// KeptHolderReport is what one holder keeps on one device.
type KeptHolderReport struct {
	Holder      string   `json:"holder"`           // the path, with a star for each number; "no holder found" for the rest
	Class       string   `json:"class,omitempty"`  // the same path from its innermost class on
	Frames      []string `json:"frames,omitempty"` // the path as frames of a stack, the root first
	Device      string   `json:"device"`           // "cuda:0"
	Found       bool     `json:"found"`            // the path leads from Python to the storages
	Bytes       uint64   `json:"bytes"`
	OlderBytes  uint64   `json:"older_bytes"`            // part of bytes from before the attach
	DriverBytes uint64   `json:"driver_bytes,omitempty"` // part of bytes that CUDA gave out, not PyTorch's allocator
	Storages    uint64   `json:"storages"`
	InMotion    uint64   `json:"in_motion,omitempty"`  // storages that changed while they were read
	Container   string   `json:"container,omitempty"`  // class of the innermost container
	Containers  int      `json:"containers,omitempty"` // how many different ones
	Entries     *int     `json:"entries,omitempty"`    // of all of them
	Also        []string `json:"also,omitempty"`       // further holders of the same storages
}

// KeptGrownReport is a holder that keeps more than at the first walk.
type KeptGrownReport struct {
	Holder         string `json:"holder"`
	Device         string `json:"device"`
	Bytes          int64  `json:"bytes"` // more than at the first walk
	BytesPerMinute int64  `json:"bytes_per_minute"`
	Storages       int64  `json:"storages"`
	Entries        int64  `json:"entries,omitempty"` // of its containers
}

// HeldShareReport is the part of some memory that one holder keeps.
type HeldShareReport struct {
	Holder string `json:"holder"` // as in holders of the report
	Bytes  uint64 `json:"bytes"`
}

func keptReports(s *ledger.Snapshot, kept []*report.Kept) (list []KeptReport) {
	for _, k := range kept {
		if k == nil {
			continue
		}
		r := KeptReport{
			Process: k.Process, PID: s.Processes[k.Process].PID, WalkNS: k.At, Failure: k.Failure, BetweenNS: uint64(k.Between),
			Holders: []KeptHolderReport{}, Grown: []KeptGrownReport{}, Problems: k.Problems,
		}
		for i := range k.Lines {
			r.Holders = append(r.Holders, keptHolderReport(&k.Lines[i]))
		}
		r.Grown = append(r.Grown, keptGrownReports(k.Grown)...)
		r.Passing, r.Unclear = keptGrownReports(k.Passing), keptGrownReports(k.Unclear)
		list = append(list, r)
	}
	return list
}

func keptGrownReports(lines []report.GrownLine) (list []KeptGrownReport) {
	for i := range lines {
		g := &lines[i]
		list = append(list, KeptGrownReport{g.Path, g.On, g.By.Bytes, g.PerMinute, g.By.Storages, g.By.Entries})
	}
	return list
}

func keptHolderReport(l *report.HolderLine) KeptHolderReport {
	r := KeptHolderReport{
		Holder: l.Path, Class: l.Class, Frames: l.Frames, Device: l.On, Found: l.Found, Bytes: l.Bytes, OlderBytes: l.Older, DriverBytes: l.Driver,
		Storages: l.Storages, InMotion: l.InMotion, Container: l.Container, Containers: l.Containers, Also: l.Also,
	}
	if l.Containers > 0 && l.Entries >= 0 {
		r.Entries = &l.Entries
	}
	return r
}

func shareReports(shares []report.HeldShare) (list []HeldShareReport) {
	for i := range shares {
		list = append(list, HeldShareReport{shares[i].Name(), shares[i].Bytes})
	}
	return list
}

// olderHolders returns who keeps the memory from before the attach that a part shows.
func olderHolders(s *ledger.Snapshot, kept []*report.Kept, x *ledger.Part) []HeldShareReport {
	return shareReports(kept[x.Process].Divide(s, &report.Holding{
		Plane: report.PlaneBefore, Mark: report.MarkOlder, Process: x.Process, Device: x.Device, UUID: x.UUID, Live: int64(x.OlderAllocated),
	}))
}

// groupHolders returns who keeps what lives of a group of sites.
func groupHolders(s *ledger.Snapshot, k *report.Kept, sites []int) []HeldShareReport {
	list := make([]*ledger.Site, 0, len(sites))
	for _, i := range sites {
		list = append(list, &s.Sites[i])
	}
	return shareReports(k.OfSites(list))
}
