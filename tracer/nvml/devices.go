// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Values above these limits are misread or wrong.
const (
	maxGPUs  = 512
	maxBytes = 1 << 50
)

// device is a GPU during one call: handles are not kept.
type device struct {
	gonvml.Device
	index     int
	uuid      string
	divided   bool // in MIG mode
	instances []migInstance
}

func (l *realLibrary) gpus() ([]ledger.GPU, map[string]partition, error) {
	var gpus []ledger.GPU
	partitions := map[string]partition{}
	err := l.each(func(d device) error {
		gpu, err := l.describe(d.Device)
		gpu.Index, gpu.UUID = d.index, d.uuid
		l.describeSystem(d.Device, &gpu)
		gpus = append(gpus, gpu)
		partitions[d.uuid] = partition{divided: d.divided, minor: l.minor(d.Device)}
		errs := []error{err}
		for _, m := range d.instances {
			gpu, err := l.describe(m.Device)
			gpu.Index, gpu.UUID, gpu.Parent, gpu.Integrated = d.index, m.uuid, d.uuid, false
			gpus = append(gpus, gpu)
			partitions[m.uuid] = partition{instance: m.instance}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return gpus, partitions, err
}

// describe reads the name and memory of a GPU or an instance.
func (l *realLibrary) describe(d gonvml.Device) (gpu ledger.GPU, err error) {
	if l.has["nvmlDeviceGetName"] {
		if name, ret := d.GetName(); ret == gonvml.SUCCESS {
			gpu.Name = printable(name)
		}
	}
	if !l.has["nvmlDeviceGetMemoryInfo"] {
		return gpu, nil
	}
	memory, ret := d.GetMemoryInfo()
	switch ret {
	case gonvml.SUCCESS:
		if memory.Total > maxBytes || memory.Used > maxBytes {
			return gpu, fmt.Errorf("nvmlDeviceGetMemoryInfo: the driver claims %d of %d bytes", memory.Used, memory.Total)
		}
		gpu.Total, gpu.Used = memory.Total, memory.Used
	case gonvml.ERROR_NOT_SUPPORTED:
		gpu.Integrated = true // as NVML's header has it
	case gonvml.ERROR_NO_PERMISSION: // containers with some instances of a GPU
	default:
		err = callError("nvmlDeviceGetMemoryInfo", ret)
	}
	return gpu, err
}

// minor returns the number of a GPU's device node, or -1 if unknown.
func (l *realLibrary) minor(d gonvml.Device) int {
	if !l.has["nvmlDeviceGetMinorNumber"] {
		return -1
	}
	minor, ret := d.GetMinorNumber()
	if ret != gonvml.SUCCESS || minor < 0 || minor >= maxGPUs {
		return -1
	}
	return minor
}

// each visits all visible devices. An error of one does not skip the others.
func (l *realLibrary) each(visit func(device) error) error {
	count, err := l.count()
	if err != nil {
		return err
	}
	var errs []error
	if count < 0 || count > maxGPUs {
		return fmt.Errorf("nvmlDeviceGetCount: the driver claims %d GPUs", uint32(count))
	}
	seen := map[string]bool{}
	for index := range count {
		handle, ret := l.api.DeviceGetHandleByIndex(index)
		if ret == gonvml.ERROR_NO_PERMISSION {
			continue // counted but not visible: a container with some of the host's GPUs
		}
		if ret != gonvml.SUCCESS {
			errs = append(errs, fmt.Errorf("GPU %d: %w", index, callError("nvmlDeviceGetHandleByIndex", ret)))
			continue
		}
		uuid, ret := handle.GetUUID()
		if ret != gonvml.SUCCESS {
			errs = append(errs, fmt.Errorf("GPU %d: %w", index, callError("nvmlDeviceGetUUID", ret)))
			continue
		}
		if uuid == "" || uuid != printable(uuid) || seen[uuid] {
			errs = append(errs, fmt.Errorf("GPU %d: nvmlDeviceGetUUID: the UUID is empty, a duplicate or not text", index))
			continue
		}
		seen[uuid] = true
		d := device{Device: handle, index: index, uuid: uuid}
		err := l.divide(&d)
		if err = errors.Join(err, visit(d)); err != nil {
			errs = append(errs, fmt.Errorf("GPU %d (%s): %w", index, uuid, err))
		}
	}
	return errors.Join(errs...)
}

func (l *realLibrary) usage() (r usageResult, err error) {
	err = l.each(func(d device) error {
		infos, denied, err := l.processes(d.Device)
		if denied && d.divided {
			// Only administrators may read a divided GPU as a whole; each instance reports its own.
			infos, err = l.processesOfInstances(d.instances)
		}
		usages, skipped := merge(d, infos.named)
		r.list = append(r.list, usages...)
		r.unavailable += skipped
		r.nameless = append(r.nameless, nameless(d, infos.nameless)...)
		for pid := range infos.mps {
			r.mps = append(r.mps, pid)
		}
		return err
	})
	slices.Sort(r.mps)
	r.mps = slices.Compact(r.mps)
	return r, err
}

// listed is what the lists of a GPU or an instance have.
type listed struct {
	named, nameless []gonvml.ProcessInfo
	mps             map[uint32]bool // pids of those that use CUDA through MPS
}

// processes joins the lists of a GPU or an instance: CUDA, graphics, and CUDA through MPS. denied
// reports whether access to at least one was denied. A process in two lists has a pid in both or in
// neither: nameless is of the list that has most of them.
func (l *realLibrary) processes(d gonvml.Device) (infos listed, denied bool, err error) {
	var errs []error
	infos.mps = map[uint32]bool{}
	for i := range l.lists {
		list := &l.lists[i]
		some, ret, err := list.read(d)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ret == gonvml.SUCCESS:
			var nameless []gonvml.ProcessInfo
			for _, info := range some {
				if info.Pid == 0 {
					nameless = append(nameless, info)
					continue
				}
				infos.named = append(infos.named, info)
				if list.name == mpsList {
					infos.mps[info.Pid] = true
				}
			}
			if len(nameless) > len(infos.nameless) {
				infos.nameless = nameless
			}
		case ret == gonvml.ERROR_NOT_SUPPORTED, ret == gonvml.ERROR_NOT_FOUND:
		default:
			denied = denied || ret == gonvml.ERROR_NO_PERMISSION
			errs = append(errs, callError(list.name, ret))
		}
	}
	return infos, denied, errors.Join(errs...)
}

// nameless sums the entries without a pid, by GPU and instance: no process, or one that this pid
// namespace cannot see. Entries without a figure are left out.
func nameless(d device, infos []gonvml.ProcessInfo) (list []ledger.Usage) {
	for _, info := range infos {
		if info.UsedGpuMemory == 0 || info.UsedGpuMemory > maxBytes {
			continue
		}
		uuid := d.at(instance{info.GpuInstanceId, info.ComputeInstanceId})
		if i := slices.IndexFunc(list, func(u ledger.Usage) bool { return u.UUID == uuid }); i >= 0 {
			list[i].Bytes = min(list[i].Bytes+info.UsedGpuMemory, maxBytes)
			continue
		}
		list = append(list, ledger.Usage{UUID: uuid, Bytes: info.UsedGpuMemory})
	}
	return list
}

// merge combines all entries of a pid on a GPU or an instance into one Usage. A pid in two lists
// has the same figure in both. Memory on an unlisted instance counts for the GPU.
func merge(d device, infos []gonvml.ProcessInfo) (usages []ledger.Usage, unavailable int) {
	type user struct {
		pid uint32
		instance
	}
	used := map[user]uint64{}
	unknown := map[user]bool{}
	for _, info := range infos {
		key := user{info.Pid, instance{info.GpuInstanceId, info.ComputeInstanceId}}
		if info.UsedGpuMemory > maxBytes { // all bits set: NVML_VALUE_NOT_AVAILABLE
			unknown[key] = true
			continue
		}
		used[key] = max(used[key], info.UsedGpuMemory)
	}
	for key := range unknown {
		if _, ok := used[key]; !ok {
			unavailable++
		}
	}
	type place struct {
		pid  uint32
		uuid string
	}
	sums := map[place]uint64{}
	for key, bytes := range used {
		sums[place{key.pid, d.at(key.instance)}] += bytes
	}
	for at, bytes := range sums {
		usages = append(usages, ledger.Usage{PID: at.pid, UUID: at.uuid, Bytes: bytes})
	}
	slices.SortFunc(usages, func(a, b ledger.Usage) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.UUID, b.UUID))
	})
	return usages, unavailable
}
