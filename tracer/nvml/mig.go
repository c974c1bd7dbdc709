// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"errors"
	"maps"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxInstances is the most MIG instances accepted from a driver: current GPUs have 7, and newer
// profiles add one.
const maxInstances = 128

// migInstance is a MIG device: a compute instance in a GPU instance.
type migInstance struct {
	gonvml.Device
	uuid string
	instance
}

// divide finds the instances of a GPU in MIG mode. Without MIG support in driver and GPU there are
// none. Instances that this process may not see are omitted.
func (l *realLibrary) divide(d *device) error {
	for _, name := range []string{
		"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
		"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	} {
		if !l.has[name] {
			return nil
		}
	}
	mode, _, ret := d.GetMigMode()
	if ret != gonvml.SUCCESS || mode != gonvml.DEVICE_MIG_ENABLE {
		return nil
	}
	d.divided = true
	count, ret := d.GetMaxMigDeviceCount()
	if ret != gonvml.SUCCESS {
		return callError("nvmlDeviceGetMaxMigDeviceCount", ret)
	}
	var errs []error
	for index := range min(count, maxInstances) {
		m, ret := instanceAt(d, index)
		switch ret.code {
		case gonvml.SUCCESS:
			d.instances = append(d.instances, m)
		case gonvml.ERROR_NOT_FOUND, gonvml.ERROR_NO_PERMISSION: // numbers without an instance; not visible to us
		default:
			errs = append(errs, callError(ret.call, ret.code))
		}
	}
	return errors.Join(errs...)
}

type result struct {
	call string
	code gonvml.Return
}

func instanceAt(d *device, index int) (m migInstance, r result) {
	m.Device, r.code = d.GetMigDeviceHandleByIndex(index)
	if r.call = "nvmlDeviceGetMigDeviceHandleByIndex"; r.code != gonvml.SUCCESS {
		return m, r
	}
	m.uuid, r.code = m.GetUUID()
	m.uuid = printable(m.uuid)
	if r.call = "nvmlDeviceGetUUID"; r.code != gonvml.SUCCESS {
		return m, r
	}
	var id int
	id, r.code = m.GetGpuInstanceId()
	m.gpu = uint32(id)
	if r.call = "nvmlDeviceGetGpuInstanceId"; r.code != gonvml.SUCCESS {
		return m, r
	}
	id, r.code = m.GetComputeInstanceId()
	m.compute = uint32(id)
	r.call = "nvmlDeviceGetComputeInstanceId"
	return m, r
}

// at returns the UUID of an instance, or of the whole GPU.
func (d *device) at(i instance) string {
	for _, m := range d.instances {
		if m.instance == i {
			return m.uuid
		}
	}
	return d.uuid
}

// processesOfInstances asks each instance for its processes.
func (l *realLibrary) processesOfInstances(instances []migInstance) (all listed, err error) {
	var errs []error
	all.mps = map[uint32]bool{}
	for _, m := range instances {
		infos, _, err := l.processes(m.Device)
		maps.Copy(all.mps, infos.mps)
		for _, of := range []struct{ from, to *[]gonvml.ProcessInfo }{{&infos.named, &all.named}, {&infos.nameless, &all.nameless}} {
			for _, info := range *of.from {
				info.GpuInstanceId, info.ComputeInstanceId = m.gpu, m.compute
				*of.to = append(*of.to, info)
			}
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}
