// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

/*
typedef int (*list_function)(void *device, unsigned *count, void *list);

static int call_list(void *function, void *device, unsigned *count, void *list)
{
	return ((list_function)function)(device, count, list);
}
*/
import "C"

import (
	"fmt"
	"reflect"
	"unsafe"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The lists of processes are read here rather than by go-nvml, which allocates as many entries as
// the driver claims.
const (
	firstProcesses = 64
	maxProcesses   = 1 << 15 // per GPU
)

// Layouts of an entry: the unversioned one has pid and bytes, the other also the instance's
// numbers.
type (
	processV1 struct {
		pid   uint32
		bytes uint64
	}
	processV2 struct {
		pid      uint32
		bytes    uint64
		instance instance
	}
)

// list is a function that lists processes.
type list struct {
	name     string
	function unsafe.Pointer
	old      bool // uses the first layout
}

// handleOf returns the driver's own handle: go-nvml wraps it in a structure with one field.
func handleOf(d gonvml.Device) unsafe.Pointer {
	v := reflect.ValueOf(d)
	if v.Kind() != reflect.Struct || v.NumField() == 0 || v.Field(0).Kind() != reflect.Pointer {
		return nil
	}
	return v.Field(0).UnsafePointer()
}

// read reads the list, with a larger buffer if the driver asks for one.
func (l *list) read(d gonvml.Device) ([]gonvml.ProcessInfo, gonvml.Return, error) {
	handle := handleOf(d)
	if handle == nil {
		return nil, 0, fmt.Errorf("%s: the device has no handle", l.name)
	}
	for room := uint32(firstProcesses); ; {
		entries := make([]processV2, room) // large enough for any layout
		count := C.uint(room)
		ret := gonvml.Return(C.call_list(l.function, handle, &count, unsafe.Pointer(&entries[0])))
		switch {
		case ret == gonvml.ERROR_INSUFFICIENT_SIZE && room < maxProcesses:
			room = min(max(2*room, uint32(min(count, maxProcesses))), maxProcesses)
			continue
		case ret == gonvml.SUCCESS && uint32(count) > room, ret == gonvml.ERROR_INSUFFICIENT_SIZE:
			return nil, ret, fmt.Errorf("%s: the driver claims %d processes", l.name, uint32(count))
		case ret != gonvml.SUCCESS:
			return nil, ret, nil
		}
		return l.infos(entries, int(count)), ret, nil
	}
}

func (l *list) infos(entries []processV2, n int) []gonvml.ProcessInfo {
	infos := make([]gonvml.ProcessInfo, n)
	if l.old {
		old := unsafe.Slice((*processV1)(unsafe.Pointer(&entries[0])), len(entries))
		for i := range infos {
			infos[i] = gonvml.ProcessInfo{Pid: old[i].pid, UsedGpuMemory: old[i].bytes, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}
		}
		return infos
	}
	for i := range infos {
		e := &entries[i]
		infos[i] = gonvml.ProcessInfo{Pid: e.pid, UsedGpuMemory: e.bytes, GpuInstanceId: e.instance.gpu, ComputeInstanceId: e.instance.compute}
	}
	return infos
}

const noInstance = 0xffffffff
