// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const defaultLibrary = "libnvidia-ml.so.1"

// realLibrary guards go-nvml: calling a symbol that the library lacks would end the
// process, so each is looked up before its first call.
type realLibrary struct {
	api gonvml.Interface
	has map[string]bool
}

// versions of the symbols that we call; go-nvml takes the newest there is.
// All are optional but for the ones in required.
var versions = map[string][]string{
	"nvmlInit":                                {"_v2", ""},
	"nvmlShutdown":                            {""},
	"nvmlSystemGetDriverVersion":              {""},
	"nvmlDeviceGetCount":                      {"_v2", ""},
	"nvmlDeviceGetHandleByIndex":              {"_v2", ""},
	"nvmlDeviceGetUUID":                       {""},
	"nvmlDeviceGetName":                       {""},
	"nvmlDeviceGetMemoryInfo":                 {""},
	"nvmlDeviceGetComputeRunningProcesses":    {"_v3", "_v2", ""},
	"nvmlDeviceGetGraphicsRunningProcesses":   {"_v3", "_v2", ""},
	"nvmlDeviceGetMPSComputeRunningProcesses": {"_v3", "_v2", ""},
}

var required = []string{"nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"}

func open(path string) (library, string, error) {
	if path == "" {
		path = defaultLibrary
	}
	// This handle is never closed: calls once bound would point to nowhere.
	handle := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := handle.Open(); err != nil {
		return nil, "", fmt.Errorf("%w: %w [install the NVIDIA driver to compare with what it reports]", ErrUnavailable, err)
	}
	l := &realLibrary{api: gonvml.New(gonvml.WithLibraryPath(path)), has: map[string]bool{}}
	for name, suffixes := range versions {
		l.has[name] = slices.ContainsFunc(suffixes, func(s string) bool { return handle.Lookup(name+s) == nil })
	}
	for _, name := range required {
		if !l.has[name] {
			return nil, "", fmt.Errorf("%w: %s lacks %s", ErrUnavailable, path, name)
		}
	}
	if ret := l.api.Init(); ret != gonvml.SUCCESS {
		return nil, "", fmt.Errorf("%w: %w", ErrUnavailable, callError("nvmlInit", ret))
	}
	version := ""
	if l.has["nvmlSystemGetDriverVersion"] {
		if v, ret := l.api.SystemGetDriverVersion(); ret == gonvml.SUCCESS {
			version = v
		}
	}
	return l, version, nil
}

func (l *realLibrary) shutdown() error {
	if ret := l.api.Shutdown(); ret != gonvml.SUCCESS {
		return callError("nvmlShutdown", ret)
	}
	return nil
}

func (l *realLibrary) gpus() ([]ledger.GPU, error) {
	var gpus []ledger.GPU
	err := l.each(func(index int, device gonvml.Device, uuid string) error {
		gpu := ledger.GPU{Index: index, UUID: uuid}
		if l.has["nvmlDeviceGetName"] {
			if name, ret := device.GetName(); ret == gonvml.SUCCESS {
				gpu.Name = name
			}
		}
		var err error
		if l.has["nvmlDeviceGetMemoryInfo"] {
			memory, ret := device.GetMemoryInfo()
			switch ret {
			case gonvml.SUCCESS:
				gpu.Total, gpu.Used = memory.Total, memory.Used
			case gonvml.ERROR_NOT_SUPPORTED: // integrated GPUs
			default:
				err = callError("nvmlDeviceGetMemoryInfo", ret)
			}
		}
		gpus = append(gpus, gpu)
		return err
	})
	return gpus, err
}

// each visits all devices. Errors of one do not keep it from the others.
func (l *realLibrary) each(visit func(index int, device gonvml.Device, uuid string) error) error {
	count, ret := l.api.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return callError("nvmlDeviceGetCount", ret)
	}
	var errs []error
	for index := range count {
		device, ret := l.api.DeviceGetHandleByIndex(index)
		if ret != gonvml.SUCCESS {
			errs = append(errs, fmt.Errorf("GPU %d: %w", index, callError("nvmlDeviceGetHandleByIndex", ret)))
			continue
		}
		uuid, ret := device.GetUUID()
		if ret != gonvml.SUCCESS {
			errs = append(errs, fmt.Errorf("GPU %d: %w", index, callError("nvmlDeviceGetUUID", ret)))
			continue
		}
		if err := visit(index, device, uuid); err != nil {
			errs = append(errs, fmt.Errorf("GPU %d (%s): %w", index, uuid, err))
		}
	}
	return errors.Join(errs...)
}

func (l *realLibrary) usage() (list []ledger.Usage, unavailable int, err error) {
	err = l.each(func(_ int, device gonvml.Device, uuid string) error {
		infos, err := l.processes(device)
		usages, skipped := merge(uuid, infos)
		list = append(list, usages...)
		unavailable += skipped
		return err
	})
	return list, unavailable, err
}

// processes joins the device's three lists: CUDA, graphics, and CUDA by way of MPS.
func (l *realLibrary) processes(device gonvml.Device) ([]gonvml.ProcessInfo, error) {
	var infos []gonvml.ProcessInfo
	var errs []error
	for _, list := range []struct {
		name string
		get  func() ([]gonvml.ProcessInfo, gonvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", device.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", device.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", device.GetMPSComputeRunningProcesses},
	} {
		if !l.has[list.name] {
			continue
		}
		some, ret := list.get()
		switch ret {
		case gonvml.SUCCESS:
			infos = append(infos, some...)
		case gonvml.ERROR_NOT_SUPPORTED, gonvml.ERROR_NOT_FOUND:
		default:
			errs = append(errs, callError(list.name, ret))
		}
	}
	return infos, errors.Join(errs...)
}

// merge makes one Usage of all entries of a pid. A pid in two lists appears
// with the same figure in both; a pid on two MIG instances uses both.
func merge(uuid string, infos []gonvml.ProcessInfo) (usages []ledger.Usage, unavailable int) {
	type instance struct{ pid, gpu, compute uint32 }
	used := map[instance]uint64{}
	unknown := map[instance]bool{}
	for _, info := range infos {
		key := instance{info.Pid, info.GpuInstanceId, info.ComputeInstanceId}
		if info.UsedGpuMemory == math.MaxUint64 { // NVML_VALUE_NOT_AVAILABLE
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
	sums := map[uint32]uint64{}
	for key, bytes := range used {
		sums[key.pid] += bytes
	}
	for pid, bytes := range sums {
		usages = append(usages, ledger.Usage{PID: pid, UUID: uuid, Bytes: bytes})
	}
	slices.SortFunc(usages, func(a, b ledger.Usage) int { return cmp.Compare(a.PID, b.PID) })
	return usages, unavailable
}

// callError names the code itself: go-nvml would ask the library for the
// text, by a symbol that it may lack.
func callError(call string, ret gonvml.Return) error {
	text := map[gonvml.Return]string{
		gonvml.ERROR_UNINITIALIZED:           "not initialized",
		gonvml.ERROR_INVALID_ARGUMENT:        "invalid argument",
		gonvml.ERROR_NOT_SUPPORTED:           "not supported",
		gonvml.ERROR_NO_PERMISSION:           "no permission",
		gonvml.ERROR_NOT_FOUND:               "not found",
		gonvml.ERROR_INSUFFICIENT_SIZE:       "insufficient size",
		gonvml.ERROR_DRIVER_NOT_LOADED:       "the NVIDIA driver is not loaded",
		gonvml.ERROR_TIMEOUT:                 "timeout",
		gonvml.ERROR_LIBRARY_NOT_FOUND:       "library not found",
		gonvml.ERROR_FUNCTION_NOT_FOUND:      "function not found",
		gonvml.ERROR_GPU_IS_LOST:             "the GPU has fallen off the bus",
		gonvml.ERROR_RESET_REQUIRED:          "the GPU must be reset",
		gonvml.ERROR_LIB_RM_VERSION_MISMATCH: "library and kernel driver differ in version [reboot after the upgrade]",
		gonvml.ERROR_MEMORY:                  "out of memory",
		gonvml.ERROR_UNKNOWN:                 "unknown error",
	}[ret]
	if text == "" {
		return fmt.Errorf("%s: error %d", call, int(ret))
	}
	return fmt.Errorf("%s: %s", call, text)
}
