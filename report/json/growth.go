// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// GPUGrowthReport is what one GPU is used for and what of it grows.
type GPUGrowthReport struct {
	GPUUUID        string              `json:"gpu_uuid,omitempty"` // "": NVML does not list it
	Index          *int                `json:"index,omitempty"`    // of NVML
	Device         string              `json:"device"`             // what traced processes call it; unknown: they do not agree
	UsedBytes      uint64              `json:"used_bytes"`         // the sum of planes
	TotalBytes     uint64              `json:"total_bytes,omitempty"`
	BytesPerSecond float64             `json:"bytes_per_second"`        // by which all planes that grow do
	UntilFullNS    uint64              `json:"until_full_ns,omitempty"` // at this rate
	Planes         []PlaneGrowthReport `json:"planes"`
	Objects        []ObjectMadeReport  `json:"objects,omitempty"` // driver objects made since the attach that live, if they are many or the unexplained grows
	Texts          []string            `json:"texts"`             // what grows, in words
}

// PlaneGrowthReport is one plane of a GPU.
type PlaneGrowthReport struct {
	Plane          string  `json:"plane"` // tensor, cache, driver, before, unexplained, others
	Bytes          uint64  `json:"bytes"`
	Class          string  `json:"class,omitempty"` // leaking: grows for certain; growing: may be a warm-up; left out: does not grow
	GrownBytes     uint64  `json:"grown_bytes,omitempty"`
	OverNS         uint64  `json:"over_ns,omitempty"` // in which it grew by grown_bytes
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	NeedsNS        uint64  `json:"needs_ns,omitempty"`       // of growing: how much longer to trace until it can be decided
	ReservedBytes  uint64  `json:"reserved_bytes,omitempty"` // of a cache that grows: PyTorch's segments, and what tensors take of them
	InUseBytes     uint64  `json:"in_use_bytes,omitempty"`
	PID            uint32  `json:"pid,omitempty"` // of the process in which it grows most
}

// ObjectMadeReport counts the driver objects of one line of code.
type ObjectMadeReport struct {
	PID   uint32 `json:"pid"`
	Kind  string `json:"kind"` // module, library, graph executable, context, green context
	Count uint64 `json:"count"`
	Line  string `json:"line"`
}

// NewGrowth returns what each GPU is used for and what of it grows, in the order of j.GPUs.
func NewGrowth(s *ledger.Snapshot, st callstack.Stacks, j *report.Judgement) (list []GPUGrowthReport) {
	for i := range j.GPUs {
		b := &j.GPUs[i]
		r := GPUGrowthReport{
			Device: format.Device(b.Device, ledger.Device), UsedBytes: b.Balance.Used, BytesPerSecond: b.Rate, UntilFullNS: uint64(max(b.Full, 0)),
			Planes: []PlaneGrowthReport{}, Texts: append([]string{}, b.Grows...),
		}
		if b.GPU != nil {
			r.GPUUUID, r.Index, r.TotalBytes = untrusted.Clean(b.GPU.UUID), &b.GPU.Index, b.GPU.Total
		}
		for k := range b.Rows {
			x := &b.Rows[k]
			p := PlaneGrowthReport{Plane: report.PlaneKey(x.Plane), Bytes: x.Bytes}
			if x.Grows() {
				p.Class, p.GrownBytes, p.OverNS, p.BytesPerSecond, p.NeedsNS = x.Class.String(), x.Grown, uint64(x.Over), x.Rate, uint64(max(x.Needs, 0))
				p.ReservedBytes, p.InUseBytes = x.Reserved, x.InUse
				if x.Process >= 0 {
					p.PID = s.Processes[x.Process].PID
				}
			}
			r.Planes = append(r.Planes, p)
		}
		for _, o := range b.Objects[:min(len(b.Objects), maxObjectsMade)] {
			r.Objects = append(r.Objects, ObjectMadeReport{PID: s.Processes[o.Process].PID, Kind: format.Kind(o.Kind), Count: o.Live - o.Before, Line: report.LineText(st, o.Stack, o.API)})
		}
		list = append(list, r)
	}
	return list
}

const maxObjectsMade = 20
