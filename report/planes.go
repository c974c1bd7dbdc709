// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Planes: where a byte is shown. Each is in one.
const (
	planeTensor      = "tensor"      // given out by PyTorch's allocator
	planeCache       = "cache"       // held by PyTorch's allocator for later tensors
	planeDriver      = "driver"      // all other memory taken from CUDA
	planeHost        = "host"        // page-locked memory of the host
	planeBefore      = "before"      // there when tracing began
	planeUnexplained = "unexplained" // NVML's figure minus all the others, signed
)

const (
	markCache       = "[pytorch cache]"
	markNoSample    = "[tensors without a sample]"
	markOlder       = "[before attach: pytorch allocated]"
	markOlderCached = "[before attach: pytorch cached]"
	markForeign     = "[CUDA context, modules, other before attach]"
	markUnexplained = "[unexplained]"
)

// holding is a share of memory as profiles show it: of a site, of what one process
// has on one GPU, or both.
type holding struct {
	plane   string
	mark    string       // frame on top of the site's stack, or alone
	site    *ledger.Site // nil: no stack
	process int
	device  int32
	uuid    string
	live    int64 // bytes; negative where figures do not fit together
}

// host says whether the share is apart from GPU memory.
func (h *holding) host() bool {
	if h.site != nil {
		return onHost(h.site)
	}
	return h.device == ledger.CPUDevice
}

// onHost says whether a site is apart from GPU memory.
func onHost(x *ledger.Site) bool {
	return x.Kind.OnHost() || x.Kind == ledger.Tensor && x.Device == ledger.CPUDevice
}

// reporters says of each process whether PyTorch's allocator reported tensors on a GPU. The segments of one
// that does not are shown whole, as what tensors and cache have of them is not known.
func reporters(s *ledger.Snapshot) []bool {
	list := make([]bool, len(s.Processes))
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != ledger.CPUDevice {
			list[t.Process] = true
		}
	}
	return list
}

// planeOf gives the plane of a site; one of planeCache has no bytes beyond cacheOf.
func planeOf(x *ledger.Site, reports []bool) string {
	if x.Segment && reports[x.Process] {
		return planeCache
	}
	return wholePlane(x)
}

// wholePlane is that of a site with all of its bytes.
func wholePlane(x *ledger.Site) string {
	switch {
	case x.Kind == ledger.Tensor:
		return planeTensor
	case x.Kind.OnHost():
		return planeHost
	}
	return planeDriver
}

// cacheOf is what the segments of a site hold without having given it out.
func cacheOf(x *ledger.Site) uint64 { return minus(x.LiveBytes, x.Tensors) }

// holdings are the shares of all memory, those of sites in their order first. What a process has
// on one GPU adds up to what NVML reported last, as far as it is known on which one it is.
func holdings(s *ledger.Snapshot) []holding {
	reports := reporters(s)
	list := make([]holding, 0, len(s.Sites)+2*len(s.Tensors)+4*len(s.Balances))
	for i := range s.Sites {
		x := &s.Sites[i]
		h := holding{
			plane: planeOf(x, reports), site: x, live: int64(x.LiveBytes),
			process: x.Process, device: x.Device, uuid: gpuUUID(s, x.Process, x.Device, x.Kind),
		}
		if b := s.BalanceOf(x.Process, x.Device); h.uuid == "" && b >= 0 && !onHost(x) {
			h.uuid = s.Balances[b].UUID // the only GPU that the process is on
		}
		switch {
		case h.plane == planeCache:
			h.mark, h.live = markCache, int64(cacheOf(x))
		case !counts(x.Kind):
			h.live = 0
		}
		list = append(list, h)
	}
	list = append(list, rests(s, list)...)
	for _, x := range s.Parts() {
		of := func(plane, mark string, live int64) {
			if live != 0 {
				list = append(list, holding{plane: plane, mark: mark, process: x.Process, device: x.Device, uuid: x.UUID, live: live})
			}
		}
		of(planeBefore, markOlder, int64(x.OlderAllocated))
		of(planeBefore, markOlderCached, int64(x.OlderCached))
		of(planeBefore, markForeign, int64(x.Foreign))
		of(planeUnexplained, markUnexplained, x.Unexplained)
	}
	return list
}

// rests are what sites of tensors and segments leave of the totals, which are exact: tensors of a
// size of which no sample was taken, for one.
func rests(s *ledger.Snapshot, list []holding) []holding {
	type place struct {
		process int
		device  int32
		plane   string
	}
	sum := map[place]int64{}
	for _, h := range list {
		sum[place{h.process, h.device, h.plane}] += h.live
	}
	var out []holding
	for i := range s.Tensors {
		t := &s.Tensors[i]
		uuid := gpuUUID(s, t.Process, t.Device, ledger.Tensor)
		rest := func(plane, mark string, all uint64) {
			if live := int64(all) - sum[place{t.Process, t.Device, plane}]; live != 0 {
				out = append(out, holding{plane: plane, mark: mark, process: t.Process, device: t.Device, uuid: uuid, live: live})
			}
		}
		rest(planeTensor, markNoSample, t.LiveBytes)
		if t.Device != ledger.CPUDevice {
			rest(planeCache, markCache, t.Cached)
		}
	}
	return out
}
