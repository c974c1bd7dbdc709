// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const defaultLibrary = "libnvidia-ml.so.1"

// realLibrary guards go-nvml, which calls the functions that load binds.
type realLibrary struct {
	path   string
	loaded loaded // while started
	api    gonvml.Interface
	has    map[string]bool
	lists  []list // functions that list processes
}

// Values above these limits are misread or wrong.
const (
	maxGPUs  = 512
	maxBytes = 1 << 50
)

// versions lists the versions of each function that this package calls, the newest first, which all
// take the same arguments but for lists of processes. All but those in required are optional.
var versions = map[string][]string{
	"nvmlInit":                                {"_v2", ""},
	"nvmlShutdown":                            {""},
	"nvmlSystemGetDriverVersion":              {""},
	"nvmlDeviceGetCount":                      {"_v2", ""},
	"nvmlDeviceGetHandleByIndex":              {"_v2", ""},
	"nvmlDeviceGetUUID":                       {""},
	"nvmlDeviceGetName":                       {""},
	"nvmlDeviceGetMemoryInfo":                 {""},
	"nvmlDeviceGetMinorNumber":                {""},
	"nvmlDeviceGetComputeRunningProcesses":    {"_v3", "_v2", ""},
	"nvmlDeviceGetGraphicsRunningProcesses":   {"_v3", "_v2", ""},
	"nvmlDeviceGetMPSComputeRunningProcesses": {"_v3", "_v2", ""},
	"nvmlDeviceGetMigMode":                    {""},
	"nvmlDeviceGetMaxMigDeviceCount":          {""},
	"nvmlDeviceGetMigDeviceHandleByIndex":     {""},
	"nvmlDeviceGetGpuInstanceId":              {""},
	"nvmlDeviceGetComputeInstanceId":          {""},
	"nvmlDeviceGetAddressingMode":             {""},
	"nvmlDeviceGetNumaNodeId":                 {""},
}

var required = []string{"nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"}

func open(path string) (library, string, error) {
	if path == "" {
		path = defaultLibrary
	}
	l := &realLibrary{path: path, api: gonvml.New()}
	if err := l.start(); err != nil {
		return nil, "", err
	}
	version := ""
	if l.has["nvmlSystemGetDriverVersion"] {
		if v, ret := l.api.SystemGetDriverVersion(); ret == gonvml.SUCCESS {
			version = printable(v)
		}
	}
	return l, version, nil
}

// start loads the library and initializes it. If that fails, it is as before.
func (l *realLibrary) start() (err error) {
	if l.loaded, err = load(l.path); err != nil {
		return &LoadError{fmt.Errorf("%w: %w", ErrUnavailable, err)}
	}
	defer func() {
		if err != nil {
			l.loaded.unload()
			l.loaded = loaded{}
		}
	}()
	l.has, l.lists = map[string]bool{}, nil
	for name := range versions {
		function, _ := l.loaded.newest(name)
		bind(name, function)
		l.has[name] = function != nil
	}
	for _, name := range required {
		if !l.has[name] {
			return fmt.Errorf("%w: %s lacks %s", ErrUnavailable, l.path, name)
		}
	}
	for _, name := range []string{
		"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses",
	} {
		if function, suffix := l.loaded.newest(name); function != nil {
			l.lists = append(l.lists, list{name, function, suffix == ""})
		}
	}
	if ret := l.loaded.call("nvmlInit"); ret != gonvml.SUCCESS {
		return &InitError{fmt.Errorf("%w: %w", ErrUnavailable, callError("nvmlInit", ret)), initRemedy(ret)}
	}
	return nil
}

// stop ends the use of the driver, and unloads the library.
func (l *realLibrary) stop() error {
	if l.loaded.handle == nil {
		return nil
	}
	ret := l.loaded.call("nvmlShutdown")
	l.loaded.unload()
	l.loaded = loaded{}
	if ret != gonvml.SUCCESS && ret != gonvml.ERROR_UNINITIALIZED { // the driver was unloaded
		return callError("nvmlShutdown", ret)
	}
	return nil
}

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

func (l *realLibrary) usage() (list []ledger.Usage, unavailable int, err error) {
	err = l.each(func(d device) error {
		infos, denied, err := l.processes(d.Device)
		if denied && d.divided {
			// Only administrators may read a divided GPU as a whole; each instance reports its own.
			infos, err = l.processesOfInstances(d.instances)
		}
		usages, skipped := merge(d, infos)
		list = append(list, usages...)
		unavailable += skipped
		return err
	})
	return list, unavailable, err
}

// processes joins the lists of a GPU or an instance: CUDA, graphics, and CUDA through MPS. denied
// reports whether access to at least one was denied.
func (l *realLibrary) processes(d gonvml.Device) (infos []gonvml.ProcessInfo, denied bool, err error) {
	var errs []error
	for i := range l.lists {
		list := &l.lists[i]
		some, ret, err := list.read(d)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ret == gonvml.SUCCESS:
			infos = append(infos, some...)
		case ret == gonvml.ERROR_NOT_SUPPORTED, ret == gonvml.ERROR_NOT_FOUND:
		default:
			denied = denied || ret == gonvml.ERROR_NO_PERMISSION
			errs = append(errs, callError(list.name, ret))
		}
	}
	return infos, denied, errors.Join(errs...)
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
		if info.Pid == 0 {
			continue // no process, or one that this pid namespace cannot see
		}
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

// count returns the number of GPUs. It loads and initializes the library again if the driver was
// unloaded or replaced in the meantime.
func (l *realLibrary) count() (int, error) {
	count, ret := l.api.DeviceGetCount()
	switch ret {
	case gonvml.ERROR_UNINITIALIZED, gonvml.ERROR_DRIVER_NOT_LOADED, gonvml.ERROR_GPU_IS_LOST, gonvml.ERROR_LIB_RM_VERSION_MISMATCH, gonvml.ERROR_UNKNOWN, gonvml.ERROR_FUNCTION_NOT_FOUND:
		_ = l.stop()
		if err := l.start(); err != nil {
			return 0, err
		}
		count, ret = l.api.DeviceGetCount()
	}
	if ret != gonvml.SUCCESS {
		return 0, callError("nvmlDeviceGetCount", ret)
	}
	return count, nil
}

// printable removes unprintable characters from a driver's text, which may lack its terminator.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// initRemedy returns the remedy for a library that loads but does not initialize.
func initRemedy(ret gonvml.Return) string {
	switch ret {
	case gonvml.ERROR_DRIVER_NOT_LOADED:
		return "load the driver: modprobe nvidia; in a container, use the NVIDIA runtime"
	case gonvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the driver was updated while it was loaded: reboot, or load its kernel modules again; in a container, use the library that the NVIDIA runtime mounts"
	case gonvml.ERROR_NO_PERMISSION:
		return "let this user open /dev/nvidiactl, or run as root; in a container, pass the GPUs to it"
	case gonvml.ERROR_NOT_FOUND:
		return "no GPU that the driver supports was found: lspci -d 10de: lists those of the machine; in a container, pass the GPUs to it"
	case gonvml.ERROR_GPU_IS_LOST, gonvml.ERROR_RESET_REQUIRED:
		return "reset the GPU with nvidia-smi --gpu-reset, or reboot; dmesg | grep NVRM shows the cause"
	case gonvml.ERROR_INSUFFICIENT_POWER:
		return "attach them"
	}
	return "dmesg | grep NVRM shows the cause; nvidia-smi must work first"
}

// callError formats the error code itself: go-nvml would call a symbol that the library may lack.
func callError(call string, ret gonvml.Return) error {
	text := map[gonvml.Return]string{
		gonvml.ERROR_UNINITIALIZED:           "not initialized",
		gonvml.ERROR_INVALID_ARGUMENT:        "invalid argument",
		gonvml.ERROR_NOT_SUPPORTED:           "not supported",
		gonvml.ERROR_NO_PERMISSION:           "no permission",
		gonvml.ERROR_NOT_FOUND:               "not found",
		gonvml.ERROR_INSUFFICIENT_SIZE:       "insufficient size",
		gonvml.ERROR_DRIVER_NOT_LOADED:       "the NVIDIA driver is not loaded",
		gonvml.ERROR_INSUFFICIENT_POWER:      "a GPU's power cables are not attached",
		gonvml.ERROR_TIMEOUT:                 "timeout",
		gonvml.ERROR_IRQ_ISSUE:               "the kernel found an interrupt problem with a GPU",
		gonvml.ERROR_LIBRARY_NOT_FOUND:       "library not found",
		gonvml.ERROR_FUNCTION_NOT_FOUND:      "function not found",
		gonvml.ERROR_GPU_IS_LOST:             "the GPU has fallen off the bus",
		gonvml.ERROR_RESET_REQUIRED:          "the GPU must be reset",
		gonvml.ERROR_LIB_RM_VERSION_MISMATCH: "library and kernel driver differ in version",
		gonvml.ERROR_MEMORY:                  "out of memory",
		gonvml.ERROR_UNKNOWN:                 "unknown error",
	}[ret]
	if text == "" {
		return fmt.Errorf("%s: error %d", call, int(ret))
	}
	return fmt.Errorf("%s: %s", call, text)
}
