// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Planes of memory. Each byte belongs to one.
const (
	PlaneTensor      = "tensor"      // PyTorch's blocks
	PlaneCache       = "cache"       // PyTorch's segments without their blocks
	PlaneDriver      = "driver"      // all other memory allocated from CUDA; reports call it "other CUDA"
	PlaneRounding    = "rounding"    // what the driver holds for allocations beyond their bytes
	PlaneBefore      = "before"      // held at the attach
	PlaneUnexplained = "unexplained" // NVML's figure minus all the others; never below 0: see BeyondNVML

	// These belong to the sum of no GPU.
	PlaneHost    = "host"    // page-locked memory of the host, and tensors in shared memory
	PlaneManaged = "managed" // migrates between host and GPU
	PlaneSystem  = "system"  // what the system, not CUDA, allocated on a GPU's NUMA node
	PlaneAsleep  = "asleep"  // tensors whose physical memory was unmapped, and what is checkpointed: in no profile

	// In the sum of another process or API: it adds 0 bytes to profiles and to the columns of
	// views.
	PlaneImported = "imported"
)

// PlanesOnGPUs add up to what GPUs use, and PlanesApart belong to the sum of none; in the order in
// which reports list them.
var (
	PlanesOnGPUs = []string{PlaneTensor, PlaneCache, PlaneDriver, PlaneRounding, PlaneBefore, PlaneUnexplained}
	PlanesApart  = []string{PlaneHost, PlaneManaged, PlaneSystem, PlaneAsleep}
)

// Planes returns all planes.
func Planes() []string { return append(slices.Concat(PlanesOnGPUs, PlanesApart), PlaneImported) }

// PlaneName returns how reports call a plane. JSON and the labels of profiles have the plane
// itself.
func PlaneName(plane string) string {
	switch plane {
	case PlaneTensor:
		return "tensors"
	case PlaneCache:
		return "PyTorch cache"
	case PlaneDriver:
		return "other CUDA"
	case PlaneRounding:
		return "driver's rounding"
	case PlaneBefore:
		return "before attach"
	case PlaneSystem:
		return "system-allocated"
	}
	return plane // the others have their own name
}

// Marks are frames that are no code. They stand for memory without a stack, or above a stack for
// memory that it did not allocate.
const (
	MarkCache       = "[pytorch cache]"
	MarkNoSample    = "[tensors without a sample]"
	MarkUntraced    = "[not traced]" // tensors: allocated while the budget did not allow to trace them
	MarkOlder       = "[before attach: pytorch allocated]"
	MarkOlderCached = "[before attach: pytorch cached]"
	MarkAsleep      = "[asleep]"
	MarkOlderAsleep = "[before attach: pytorch allocated, asleep]"
	MarkUnlisted    = "[checkpointed or unknown]"
	MarkForeign     = "[CUDA context, modules, other before attach]"
	MarkUnexplained = "[unexplained]"
	MarkRounding    = "[driver's rounding]"
	MarkSystem      = "[system-allocated on the GPU's NUMA node]"
)

// MarkName returns how reports call the memory that a mark stands for: "tensors before attach".
// Marks without such a name are returned as they are.
func MarkName(mark string) string {
	switch mark {
	case MarkCache:
		return PlaneName(PlaneCache)
	case MarkNoSample:
		return "tensors without a sample"
	case MarkUntraced:
		return "tensors not traced"
	case MarkOlder:
		return "tensors before attach"
	case MarkOlderCached:
		return "PyTorch cache before attach"
	case MarkForeign:
		return "context, other before attach"
	case MarkUnexplained:
		return PlaneUnexplained
	case MarkRounding:
		return PlaneName(PlaneRounding)
	case MarkUnlisted:
		return "checkpointed or unknown"
	case MarkSystem:
		return PlaneName(PlaneSystem)
	}
	return mark
}

// Holding is a share of memory as profiles show it: a site's, or a process's on one GPU.
type Holding struct {
	Plane   string
	Mark    string       // frame on top of the site's stack, or alone
	Site    *ledger.Site // nil: no stack
	Process int
	Device  int32
	UUID    string
	Live    int64 // bytes, never below 0; those of a site are less where they are beyond NVML's figure
}

// IsNameless reports whether the share is of tensors that no event gave out: only their holders are
// known.
func (h *Holding) IsNameless() bool { return h.Mark == MarkOlder || h.Mark == MarkUntraced }

// Apart reports whether the share belongs to the sum of no GPU.
func (h *Holding) Apart() bool {
	return h.OnHost() || h.Plane == PlaneManaged || h.Plane == PlaneSystem || h.Plane == PlaneAsleep
}

// OnHost reports whether the share is host memory.
func (h *Holding) OnHost() bool {
	if h.Site != nil {
		return IsOnHost(h.Site)
	}
	return h.Device == ledger.CPUDevice
}

// IsApart reports whether a site belongs to the sum of no GPU.
func IsApart(x *ledger.Site) bool { return IsOnHost(x) || x.Kind == ledger.Managed }

// IsOnHost reports whether a site is host memory.
func IsOnHost(x *ledger.Site) bool {
	return x.Kind.OnHost() || x.Kind == ledger.Tensor && x.Device == ledger.CPUDevice
}

// ReportTensors returns of each process whether PyTorch's allocator reported tensors on a GPU. If
// it did not, segments are shown whole: their tensors and cache are unknown.
func ReportTensors(s *ledger.Snapshot) []bool {
	list := make([]bool, len(s.Processes))
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != ledger.CPUDevice {
			list[t.Process] = true
		}
	}
	return list
}

// planeOf returns the plane of a site. A site of PlaneCache has only CacheBytes bytes.
func planeOf(x *ledger.Site, reports []bool) string {
	if x.Segment && reports[x.Process] {
		return PlaneCache
	}
	return WholePlane(x)
}

// WholePlane returns the plane of a site with all of its bytes.
func WholePlane(x *ledger.Site) string {
	switch {
	case x.Kind == ledger.Tensor:
		return PlaneTensor
	case x.Kind.OnHost():
		return PlaneHost
	case x.Kind == ledger.Managed:
		return PlaneManaged
	case x.Kind == ledger.Imported:
		return PlaneImported
	}
	return PlaneDriver
}

// CacheBytes returns how many bytes of a site's segments are in no block.
func CacheBytes(x *ledger.Site) uint64 { return Minus(x.LiveBytes, x.Tensors) }

// Holdings returns the shares of all memory, those of sites first and in their order. The shares of
// a process on one GPU add up to NVML's last reading, as far as the GPU is known.
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
	list = unlist(s, append(list, unplacedOlder(s)...))
	parts := s.Parts()
	for _, x := range parts {
		add := func(plane, mark string, live int64) {
			if live != 0 {
				list = append(list, Holding{Plane: plane, Mark: mark, Process: x.Process, Device: x.Device, UUID: x.UUID, Live: live})
			}
		}
		add(PlaneTensor, MarkUntraced, int64(x.Untraced))
		add(PlaneBefore, MarkOlder, int64(x.OlderAllocated))
		add(PlaneBefore, MarkOlderCached, int64(x.OlderCached))
		add(PlaneBefore, MarkForeign, int64(x.Foreign))
		add(PlaneRounding, MarkRounding, int64(x.Rounding))
		add(PlaneUnexplained, MarkUnexplained, int64(x.Unexplained))
	}
	settle(list, parts)
	return append(append(list, olderAsleep(s)...), systemHoldings(s)...)
}

// rests returns the differences between the totals, which are exact, and the sites of tensors and
// segments: tensors of sizes that were not sampled, for example.
func rests(s *ledger.Snapshot, list []Holding) []Holding {
	type onGPU struct {
		process int
		device  int32
		plane   string
	}
	sum := map[onGPU]int64{}
	for _, h := range list {
		sum[onGPU{h.Process, h.Device, h.Plane}] += h.Live
	}
	var out []Holding
	for i := range s.Tensors {
		t := &s.Tensors[i]
		uuid := GPUUUID(s, t.Process, t.Device, ledger.Tensor)
		rest := func(plane, mark string, all uint64) {
			if live := int64(all) - sum[onGPU{t.Process, t.Device, plane}]; live != 0 {
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

// InSums reports whether memory of a kind is added up. Imported memory is in the sums of its owner.
func InSums(k ledger.Kind) bool { return k != ledger.Imported }

// GPUUUID returns the UUID of the GPU behind a CUDA ordinal of a process, "" if it is unknown.
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

// settle leaves no share below 0, and takes off the shares of sites what the parts take off their
// terms, so that no sum exceeds NVML's figure. Marks of the parts are smaller already.
func settle(list []Holding, parts []ledger.Part) {
	for i := range list {
		if x := &list[i]; x.Live < 0 { // sampled tensors of sites are more than the exact total
			n := -x.Live
			x.Live = 0
			takeOff(list, n, func(h *Holding) bool {
				return h.Plane == x.Plane && h.Process == x.Process && h.Device == x.Device
			})
		}
	}
	for i := range parts {
		p := &parts[i]
		on := func(plane, uuid string) func(h *Holding) bool {
			return func(h *Holding) bool {
				return h.Process == p.Process && h.UUID == uuid && (h.Plane == plane || plane == "") && h.onGPU() && !h.IsNameless()
			}
		}
		rest := takeOff(list, int64(p.Taken[ledger.TermCached]), on(PlaneCache, p.UUID))
		rest += takeOff(list, int64(p.Taken[ledger.TermDriver]), on(PlaneDriver, p.UUID))
		rest += takeOff(list, int64(p.Taken[ledger.TermTensors]), on(PlaneTensor, p.UUID))
		rest += takeOff(list, int64(p.Taken[ledger.TermUnplaced]), on("", ""))
		takeOff(list, rest, on("", p.UUID))
	}
}

// onGPU reports whether the share is in the sum of a GPU.
func (h *Holding) onGPU() bool { return !h.Apart() && h.Plane != PlaneImported }

// takeOff takes bytes off the largest of some shares, and returns what they did not have.
func takeOff(list []Holding, bytes int64, of func(*Holding) bool) (rest int64) {
	if bytes <= 0 {
		return 0
	}
	var some []*Holding
	for i := range list {
		if h := &list[i]; h.Live > 0 && of(h) {
			some = append(some, h)
		}
	}
	slices.SortStableFunc(some, func(a, b *Holding) int { return cmp.Compare(b.Live, a.Live) })
	for _, h := range some {
		n := min(bytes, h.Live)
		h.Live -= n
		bytes -= n
	}
	return bytes
}
