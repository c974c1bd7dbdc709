// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// Ordinals is the evidence for the GPUs that the ordinals of a process mean.
type Ordinals uint8

const (
	OrdinalsTold Ordinals = iota // the process itself, or its only GPU; none if Devices is empty
	// NVML lists it on as many GPUs as it uses, which are taken in NVML's order.
	OrdinalsPaired
	// NVML lists it on other GPUs than those that it reports, so they are unknown.
	OrdinalsDenied
)

// uuids returns the UUID of each CUDA ordinal. If NVML lists the process on one GPU and the process
// has used one ordinal, the ordinal means that GPU, whatever the environment says: a program can
// change it before it starts CUDA.
func (p *gpuMap) uuids() []string {
	list, _ := p.ordinals()
	return list
}

func (p *gpuMap) ordinals() ([]string, Ordinals) {
	if p.misnamed || len(p.devices) == 0 {
		switch list := p.paired(); {
		case len(p.listed()) == 1 && list != nil:
			return list, OrdinalsTold
		case list != nil:
			return list, OrdinalsPaired
		case p.misnamed:
			return nil, OrdinalsDenied
		}
	}
	if len(p.readings) != 1 {
		return p.devices, OrdinalsTold
	}
	uuid := p.readings[0].uuid
	used, _ := p.usedDevice()
	if used == UnknownDevice || int(used) >= len(p.devices) || p.devices[used] == uuid {
		return p.devices, OrdinalsTold
	}
	list := slices.Clone(p.devices)
	for i := range list {
		if list[i] == uuid {
			list[i] = ""
		}
	}
	list[used] = uuid
	return list, OrdinalsTold
}

// listed returns the readings of the GPUs on which NVML lists the process, or listed it last, in
// NVML's order.
func (p *gpuMap) listed() (list []*reading) {
	here := p.isListed()
	var last uint64
	for i := range p.readings {
		last = max(last, p.readings[i].taken)
	}
	for i := range p.readings {
		if r := &p.readings[i]; r.present || !here && r.taken == last {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *reading) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.uuid, b.uuid)) })
	return list
}

// isListed reports whether NVML lists the process on any GPU.
func (p *gpuMap) isListed() bool {
	return slices.ContainsFunc(p.readings, func(r reading) bool { return r.present })
}

// usedDevices returns the ordinals that the process is known to have allocated on, in order.
func (p *torch) usedDevices() (list []int32) {
	for i := range p.totals {
		if t := &p.totals[i]; t.Device >= 0 && !t.Kind.OnHost() {
			list = append(list, t.Device)
		}
	}
	for i := range p.tensors {
		if d := p.tensors[i].device; d >= 0 {
			list = append(list, d)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// paired assigns the GPUs that NVML lists to the used ordinals, if their numbers are equal. CUDA's
// order is NVML's if the GPUs are of one model, and each must have room for the allocations of its
// ordinal.
func (p *gpuMap) paired() []string {
	gpus, used := p.listed(), p.usedDevices()
	if len(gpus) == 0 || len(gpus) != len(used) || used[len(used)-1] >= maxDevices {
		return nil
	}
	list := make([]string, used[len(used)-1]+1)
	for i, r := range gpus {
		var live uint64
		for _, d := range r.lastLive {
			if d.device == used[i] {
				live += d.bytes
			}
		}
		if r.model != gpus[0].model || live > r.last {
			return nil
		}
		list[used[i]] = r.uuid
	}
	return list
}

// doubtOrdinals compares the ordinals that the process reports with the GPUs on which NVML lists
// it, at the moment of a reading: an ordinal with memory means a listed GPU. NVML may list a GPU in
// MIG mode instead of its instance.
func (p *poolSet) doubtOrdinals() {
	gpus := p.listed()
	if p.misnamed || len(p.devices) == 0 || len(gpus) < 2 || len(gpus) < len(p.usedDevices()) {
		return
	}
	for _, d := range p.deviceLive(nil) {
		if d.device < 0 || d.bytes == 0 {
			continue
		}
		if int(d.device) >= len(p.devices) || p.devices[d.device] != "" && !slices.ContainsFunc(gpus, func(r *reading) bool { return r.uuid == p.devices[d.device] }) {
			p.misnamed = true
			return
		}
	}
}

// usedDevice returns the one device that the process is known to have allocated on. It returns
// UnknownDevice if there is none, and several if there are more.
func (p *torch) usedDevice() (device int32, several bool) {
	device = UnknownDevice
	for i := range p.totals {
		if t := &p.totals[i]; t.Device >= 0 && !t.Kind.OnHost() && t.Device != device {
			if device != UnknownDevice {
				return UnknownDevice, true
			}
			device = t.Device
		}
	}
	for i := range p.tensors {
		if d := p.tensors[i].device; d >= 0 && d != device {
			if device != UnknownDevice {
				return UnknownDevice, true
			}
			device = d
		}
	}
	return device, false
}

// onlyGPU returns the GPU that alone carries the process, or UnknownDevice and "" if there are
// several or none is known. The ordinal alone can be unknown.
func (p *gpuMap) onlyGPU(uuids []string) (ordinal int32, uuid string) {
	switch {
	case len(uuids) == 1:
		ordinal, uuid = 0, uuids[0]
	case len(p.readings) == 1:
		uuid = p.readings[0].uuid
		ordinal = ordinalOf(uuids, uuid)
	default:
		return UnknownDevice, ""
	}
	for i := range p.totals {
		t := &p.totals[i]
		if t.Device >= 0 && t.Device != ordinal && !t.Kind.OnHost() && ordinal != UnknownDevice {
			return UnknownDevice, "" // its calls use another device
		}
	}
	for i := range p.tensors {
		if d := p.tensors[i].device; d >= 0 && d != ordinal && ordinal != UnknownDevice {
			return UnknownDevice, ""
		}
	}
	return ordinal, uuid
}

func ordinalOf(uuids []string, uuid string) int32 { return int32(slices.Index(uuids, uuid)) }

// gpuMap has the GPUs of a process, and the figures of NVML and the system for its memory there.
type gpuMap struct {
	torch
	devices  []string // UUID by CUDA ordinal
	misnamed bool     // NVML contradicts devices
	readings []reading
	system   []System // without Process and Device; by UUID
}

// reading is what NVML reported about a process on one GPU, with the books of that moment. The
// device of an ordinal may become known later, so the books are kept per ordinal.
type reading struct {
	uuid        string
	order       int    // position of its GPU in NVML's list
	model       string // of its GPU
	first, last uint64 // usage
	peak        uint64
	firstLive   []deviceLive
	lastLive    []deviceLive
	present     bool // in the latest reading
	settled     bool // first and firstLive are final
	began       uint64
	settledAt   uint64
	firstAt     uint64 // time of first and firstLive
	taken       uint64 // time of last and lastLive
	atPeak      usagePeak
	excess      excess
}

// excess bounds what NVML counts on a GPU in addition to the live bytes of the books. If a process
// allocates during a reading of NVML, the moment of the reading is unknown, and so are the live
// bytes then. But the difference hardly ever changes, so a few readings together bound it well.
type excess struct {
	low, high int64
	live      uint64 // live bytes at the latest reading, by the ordinals known then
	known     bool
}

func (p *gpuMap) reading(uuid string) *reading {
	for i := range p.readings {
		if p.readings[i].uuid == uuid {
			return &p.readings[i]
		}
	}
	return nil
}
