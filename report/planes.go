// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Planes: where a byte is shown. Each is in one.
const (
	PlaneTensor      = "tensor"      // given out by PyTorch's allocator
	PlaneCache       = "cache"       // held by PyTorch's allocator for later tensors
	PlaneDriver      = "driver"      // all other memory taken from CUDA
	PlaneBefore      = "before"      // held at the attach
	PlaneUnexplained = "unexplained" // NVML's figure minus all the others, signed

	// These are in the sum of no GPU.
	PlaneHost    = "host"    // page-locked memory of the host, and CPU tensors
	PlaneManaged = "managed" // migrates between host and GPU
	PlaneAsleep  = "asleep"  // tensors whose physical memory was unmapped: in no profile
)

// Marks are frames that are no code: they name memory that no stack has, or say what a byte of a stack is.
const (
	MarkCache       = "[pytorch cache]"
	MarkNoSample    = "[tensors without a sample]"
	MarkOlder       = "[before attach: pytorch allocated]"
	MarkOlderCached = "[before attach: pytorch cached]"
	MarkAsleep      = "[asleep]"
	MarkOlderAsleep = "[before attach: pytorch allocated, asleep]"
	MarkForeign     = "[CUDA context, modules, other before attach]"
	MarkUnexplained = "[unexplained]"
)

// Holding is a share of memory as profiles show it: of a site, of what one process
// has on one GPU, or both.
type Holding struct {
	Plane   string
	Mark    string       // frame on top of the site's stack, or alone
	Site    *ledger.Site // nil: no stack
	Process int
	Device  int32
	UUID    string
	Live    int64 // bytes; negative where figures do not fit together
}

// Apart says whether the share is in the sum of no GPU: of the host, or in a plane of its own.
func (h *Holding) Apart() bool {
	return h.OnHost() || h.Plane == PlaneManaged || h.Plane == PlaneAsleep
}

// OnHost says whether the share is memory of the host.
func (h *Holding) OnHost() bool {
	if h.Site != nil {
		return IsOnHost(h.Site)
	}
	return h.Device == ledger.CPUDevice
}

// IsApart says whether a site is in the sum of no GPU.
func IsApart(x *ledger.Site) bool { return IsOnHost(x) || x.Kind == ledger.Managed }

// IsOnHost says whether a site is memory of the host.
func IsOnHost(x *ledger.Site) bool {
	return x.Kind.OnHost() || x.Kind == ledger.Tensor && x.Device == ledger.CPUDevice
}

// ReportTensors says of each process whether PyTorch's allocator reported tensors on a GPU. The segments of one
// that does not are shown whole, as what tensors and cache have of them is not known.
func ReportTensors(s *ledger.Snapshot) []bool {
	list := make([]bool, len(s.Processes))
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != ledger.CPUDevice {
			list[t.Process] = true
		}
	}
	return list
}

// planeOf gives the plane of a site; one of PlaneCache has no bytes beyond cacheOf.
func planeOf(x *ledger.Site, reports []bool) string {
	if x.Segment && reports[x.Process] {
		return PlaneCache
	}
	return WholePlane(x)
}

// WholePlane is that of a site with all of its bytes.
func WholePlane(x *ledger.Site) string {
	switch {
	case x.Kind == ledger.Tensor:
		return PlaneTensor
	case x.Kind.OnHost():
		return PlaneHost
	case x.Kind == ledger.Managed:
		return PlaneManaged
	}
	return PlaneDriver
}

// CacheBytes is what the segments of a site hold without having given it out.
func CacheBytes(x *ledger.Site) uint64 { return Minus(x.LiveBytes, x.Tensors) }

// Holdings are the shares of all memory, those of sites in their order first. What a process has
// on one GPU adds up to what NVML reported last, as far as it is known on which one it is.
func Holdings(s *ledger.Snapshot) []Holding {
	reports := ReportTensors(s)
	list := make([]Holding, 0, len(s.Sites)+2*len(s.Tensors)+4*len(s.Balances))
	for i := range s.Sites {
		x := &s.Sites[i]
		h := Holding{
			Plane: planeOf(x, reports), Site: x, Live: int64(Awake(x)),
			Process: x.Process, Device: x.Device, UUID: GPUUUID(s, x.Process, x.Device, x.Kind),
		}
		if b := s.BalanceOf(x.Process, x.Device); h.UUID == "" && b >= 0 && !IsOnHost(x) {
			h.UUID = s.Balances[b].UUID // the only GPU that the process is on
		}
		switch {
		case h.Plane == PlaneCache:
			h.Mark, h.Live = MarkCache, int64(CacheBytes(x))
		case !InSums(x.Kind):
			h.Live = 0
		}
		list = append(list, h)
	}
	list = append(list, asleepHoldings(s)...)
	list = append(list, rests(s, list)...)
	list = append(list, unplacedOlder(s)...)
	for _, x := range s.Parts() {
		of := func(plane, mark string, live int64) {
			if live != 0 {
				list = append(list, Holding{Plane: plane, Mark: mark, Process: x.Process, Device: x.Device, UUID: x.UUID, Live: live})
			}
		}
		of(PlaneBefore, MarkOlder, int64(x.OlderAllocated))
		of(PlaneBefore, MarkOlderCached, int64(x.OlderCached))
		of(PlaneBefore, MarkForeign, int64(x.Foreign))
		of(PlaneUnexplained, MarkUnexplained, x.Unexplained)
	}
	return append(list, olderAsleep(s)...)
}

// rests are what sites of tensors and segments leave of the totals, which are exact: tensors of a
// size of which no sample was taken, for one.
func rests(s *ledger.Snapshot, list []Holding) []Holding {
	type place struct {
		process int
		device  int32
		plane   string
	}
	sum := map[place]int64{}
	for _, h := range list {
		sum[place{h.Process, h.Device, h.Plane}] += h.Live
	}
	var out []Holding
	for i := range s.Tensors {
		t := &s.Tensors[i]
		uuid := GPUUUID(s, t.Process, t.Device, ledger.Tensor)
		rest := func(plane, mark string, all uint64) {
			if live := int64(all) - sum[place{t.Process, t.Device, plane}]; live != 0 {
				out = append(out, Holding{Plane: plane, Mark: mark, Process: t.Process, Device: t.Device, UUID: uuid, Live: live})
			}
		}
		rest(PlaneTensor, MarkNoSample, Minus(t.LiveBytes, t.Asleep))
		rest(PlaneAsleep, MarkAsleep, t.Asleep)
		if t.Device != ledger.CPUDevice {
			rest(PlaneCache, MarkCache, t.Cached)
		}
	}
	return out
}

// InSums says whether memory is in sums: what is imported is in those of its owner.
func InSums(k ledger.Kind) bool { return k != ledger.Imported }

// GPUUUID returns the GPU behind a CUDA ordinal of a process, "" if unknown.
func GPUUUID(s *ledger.Snapshot, process int, device int32, kind ledger.Kind) string {
	if kind.OnHost() {
		return ""
	}
	if d := s.Processes[process].Devices; device >= 0 && int(device) < len(d) {
		return d[device]
	}
	uuid, n := "", 0
	for i := range s.Balances {
		if b := &s.Balances[i]; b.Process == process && b.Device == device {
			uuid = b.UUID
			n++
		}
	}
	if n != 1 {
		return ""
	}
	return uuid
}
