// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"time"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/oomrecord"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

// keepRecords has a record of each out-of-memory error kept in the archive, if there is one.
func (s *server) keepRecords(dir string, keep int) error {
	if keep == 0 || dir == "" {
		return nil
	}
	records, err := archive.OpenRecords(dir, keep)
	if err != nil {
		return fault.New(fault.Failed, err)
	}
	s.ooms = oomrecord.New(s.session.Stderr, func(o oom.Error) (string, error) {
		var record archive.Record
		source := oomrecord.Source{NVML: s.session.Trace.NVML, Stacks: s.stacks}
		// A busy machine has thousands of processes in the books that ended minutes ago and hold
		// nothing.
		source.Snapshot = func(books *ledger.Snapshot) *ledger.Snapshot {
			return s.session.Books(books).Only(func(p *ledger.Process) bool { return p.End == 0 || p.PID == o.PID })
		}
		source.Composed = func(snapshot *ledger.Snapshot, x report.OOM) {
			record = recordOf(x, text.GPUOfOOM(snapshot, s.stacks, x), snapshot.Host)
		}
		page, profile, err := source.Content(o)
		if err != nil {
			return "", err
		}
		if uid := o.User - 1; o.User != 0 && o.User != ledger.NoUser {
			record.User = &uid
		}
		return records.Add(record, page, profile)
	})
	s.ooms.Lost = func() (uint64, map[uint32]uint64) {
		if s.tracer() == nil {
			return 0, nil
		}
		return s.tracer().LostOOMs()
	}
	return nil
}

// recordOf returns the record of an error.
func recordOf(x report.OOM, on report.OOMGPU, host string) archive.Record {
	r := archive.Record{
		Time: time.Now().Add(-time.Duration(clock.Now() - x.Time)).UTC(), PID: x.PID, Comm: x.Comm, Workload: workloadOf(on.Workload), Host: host,
		API: x.API, Device: format.Device(x.Device, x.Kind), Allocated: x.Allocated, Reserved: x.Reserved, Line: lineText(&on.Line), Own: on.Own,
		Others: []archive.RecordProcess{},
	}
	if x.Size != ledger.UnknownSize {
		r.RequestedSize = &x.Size
	}
	if g := on.GPU; g != nil {
		r.GPU = &archive.RecordGPU{UUID: g.UUID, Index: g.Index, Name: g.Name, Total: g.Total, Used: g.Used}
	}
	for i := range on.Users {
		u := &on.Users[i]
		other := archive.RecordProcess{PID: u.PID, Comm: u.Comm, Workload: workloadOf(u.Workload), Bytes: u.Bytes, Traced: u.Traced, LineBytes: u.LineBytes}
		if u.Line != nil {
			other.Line = lineText(u.Line)
		}
		r.Others = append(r.Others, other)
	}
	return r
}

func workloadOf(w ledger.Workload) archive.Workload {
	return archive.Workload{Container: w.Container, Pod: w.Pod, Namespace: w.Namespace, Job: w.Job, Rank: w.Rank}
}

// maxRecordLine is the longest line of code of a record, in columns.
const maxRecordLine = 200

func lineText(f *callstack.Frame) string { return frames.Text(f, maxRecordLine) }
