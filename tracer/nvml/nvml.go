// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

const defaultLibrary = "libnvidia-ml.so.1"

// mpsList lists the processes that use CUDA through MPS.
const mpsList = "nvmlDeviceGetMPSComputeRunningProcesses"

// realLibrary guards go-nvml, which calls the functions that load binds.
type realLibrary struct {
	path   string
	loaded loaded // while started
	api    gonvml.Interface
	has    map[string]bool
	lists  []list // functions that list processes
}

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
		"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses", mpsList,
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
