// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

// load_library loads a library; *problem is why it cannot be, which the caller frees.
static void *load_library(const char *path, char **problem)
{
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!library)
		*problem = strdup(dlerror());
	return library;
}

static int call_plain(void *function) { return ((int (*)(void))function)(); }
*/
import "C"

import (
	"errors"
	"unsafe"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
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

// loaded is a library in this process. There is one at a time.
type loaded struct{ handle unsafe.Pointer }

// load loads the library at path, of the version that is installed now.
func load(path string) (loaded, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var problem *C.char
	handle := C.load_library(name, &problem)
	if handle == nil {
		defer C.free(unsafe.Pointer(problem))
		return loaded{}, errors.New(C.GoString(problem))
	}
	return loaded{handle}, nil
}

// unload unmaps the library. Its functions fail from now on.
func (l loaded) unload() {
	for name := range versions {
		bind(name, nil)
	}
	C.dlclose(l.handle)
}

// newest returns the newest version of a function, and its suffix; nil if there is none.
func (l loaded) newest(name string) (function unsafe.Pointer, suffix string) {
	for _, suffix := range versions[name] {
		symbol := C.CString(name + suffix)
		function := C.dlsym(l.handle, symbol)
		C.free(unsafe.Pointer(symbol))
		if function != nil {
			return function, suffix
		}
	}
	return nil, ""
}

// call calls a function without arguments.
func (l loaded) call(name string) gonvml.Return {
	function, _ := l.newest(name)
	return gonvml.Return(C.call_plain(function))
}

// bind has go-nvml call a function, and reports whether it calls one of that name.
func bind(name string, function unsafe.Pointer) bool {
	symbol := C.CString(name)
	defer C.free(unsafe.Pointer(symbol))
	return C.bind_function(symbol, function) != 0
}
