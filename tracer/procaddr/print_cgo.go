// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package procaddr

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*first)(const char *, void **, int, uint64_t);
static int (*second)(const char *, void **, int, uint64_t, int *);

// load returns an error, or NULL. It initializes nothing: cuGetProcAddress needs neither cuInit nor
// a GPU. Nothing is closed, because the process ends.
static const char *load(const char *library)
{
	void *cuda = dlopen(library, RTLD_NOW);
	if (!cuda)
		return dlerror();
	first = dlsym(cuda, "cuGetProcAddress");
	second = dlsym(cuda, "cuGetProcAddress_v2");
	Dl_info info;
	if (!first && !second)
		return "libcuda.so.1 has no cuGetProcAddress";
	if (!dladdr(first ? (void *)first : (void *)second, &info) || !info.dli_fname)
		return "the file of libcuda.so.1 is unknown";
	printf("%s\n", info.dli_fname);
	return NULL;
}

static void *look(int both, const char *name, int version, int mode)
{
	void *found = NULL;
	int status = 0;
	if (both ? !second : !first)
		return NULL;
	if (both ? second(name, &found, version, mode, &status) : first(name, &found, version, mode))
		return NULL;
	return found;
}

static void say(const char *name, int both, int mode, int from, int to, void *found)
{
	Dl_info info = {0};
	if (!found)
		return;
	int known = dladdr(found, &info);
	printf("%s %d %d %d %d %llu %s\n", name, both, mode, from, to,
		known ? (unsigned long long)((char *)found - (char *)info.dli_fbase) : 0ULL,
		known && info.dli_sname && found == info.dli_saddr ? info.dli_sname : "?");
}

// ask prints what is returned for a name: one line for each range of versions.
static void ask(const char *name)
{
	for (int both = 0; both < 2; both++)
		for (int mode = 0; mode <= 2; mode++) {
			void *last = NULL;
			int from = 0, to = 0;
			// CUDA 2.0 to 14.9: 1000 for each major version, 10 for each minor one
			for (int version = 2000; version < 15000; version += version % 1000 == 90 ? 910 : 10) {
				void *found = look(both, name, version, mode);
				if (found != last) {
					say(name, both, mode, from, to, last);
					last = found;
					from = version;
				}
				to = version;
			}
			say(name, both, mode, from, to, last);
		}
	fflush(stdout);
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Print loads libcuda.so.1 into this process and prints on standard output its path, and its
// answers for the names.
func Print(names []string) error {
	library := C.CString("libcuda.so.1")
	defer C.free(unsafe.Pointer(library))
	if text := C.load(library); text != nil {
		return errors.New(C.GoString(text))
	}
	for _, name := range names {
		text := C.CString(name)
		C.ask(text)
		C.free(unsafe.Pointer(text))
	}
	return nil
}
