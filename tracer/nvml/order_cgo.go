// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// cuda_order fills in the UUIDs of all GPUs in CUDA's order; -1 where CUDA cannot be asked. Nothing
// is closed: the process ends.
static int cuda_order(const char *library, unsigned char uuids[][16], int room)
{
	void *cuda = dlopen(library, RTLD_NOW);
	if (!cuda)
		return -1;
	int (*init)(unsigned) = dlsym(cuda, "cuInit");
	int (*get_count)(int *) = dlsym(cuda, "cuDeviceGetCount");
	int (*get)(int *, int) = dlsym(cuda, "cuDeviceGet");
	int (*get_uuid)(unsigned char *, int) = dlsym(cuda, "cuDeviceGetUuid");
	int count, device;
	if (!init || !get_count || !get || !get_uuid || init(0) || get_count(&count))
		return -1;
	for (int i = 0; i < count && i < room; i++)
		if (get(&device, i) || get_uuid(uuids[i], device))
			return -1;
	return count < room ? count : room;
}
*/
import "C"

import (
	"fmt"
	"io"
	"unsafe"
)

// PrintOrder writes the UUIDs of the GPUs in CUDA's order, one per line. It initializes CUDA in
// this process.
func PrintOrder(w io.Writer) error {
	name := C.CString("libcuda.so.1")
	defer C.free(unsafe.Pointer(name))
	var uuids [maxVisible][16]byte
	count := C.cuda_order(name, (*[16]C.uchar)(unsafe.Pointer(&uuids[0])), maxVisible)
	if count < 0 {
		return fmt.Errorf("libcuda.so.1 does not list its GPUs")
	}
	for _, u := range uuids[:count] {
		if _, err := fmt.Fprintln(w, uuidText(u)); err != nil {
			return err
		}
	}
	return nil
}
