// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/cudaapi"
)

// listener is a libcuda.so.1 in front of NVIDIA's: it forwards the runtime's lookups, and prints
// each with the driver's result, as an offset from the driver's first mapping.
const listener = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *driver(void)
{
	static void *library;
	if (!library && !(library = dlopen(getenv("DRIVER"), RTLD_NOW)))
		fprintf(stderr, "%s\n", dlerror()), exit(1);
	return library;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);
static void say(const char *name, void **function, int version, uint64_t flags, int result)
{
	Dl_info info;
	if (*name && !result && *function)
		printf("%s %d %d %ld\n", name, version, (int)flags, dladdr(*function, &info) ? (long)((char *)*function - (char *)info.dli_fbase) : -1);
	if (!strcmp(name, "cuGetProcAddress") && !result) /* keep listening */
		*function = version < 12000 ? dlsym(RTLD_DEFAULT, "cuGetProcAddress") : (void *)cuGetProcAddress_v2;
}
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
	int (*real)(const char *, void **, int, uint64_t) = dlsym(driver(), "cuGetProcAddress");
	int result = real(name, function, version, flags);
	say(name, function, version, flags, result);
	return result;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
	int (*real)(const char *, void **, int, uint64_t, int *) = dlsym(driver(), "cuGetProcAddress_v2");
	int result = real ? real(name, function, version, flags, status) : 1; /* driver 470 has none */
	say(name, function, version, flags, result);
	return result;
}
int cuInit(unsigned flags) { return ((int (*)(unsigned))dlsym(driver(), "cuInit"))(flags); }
int cuDriverGetVersion(int *version) { return ((int (*)(int *))dlsym(driver(), "cuDriverGetVersion"))(version); }
`

// starter makes a runtime start its driver. Without a GPU it fails, after the lookup of all
// functions.
const starter = `
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **argument)
{
	void *library = dlopen(argument[1], RTLD_NOW), *out = 0;
	if (!library)
		return fprintf(stderr, "%s\n", dlerror()), 1;
	int (*allocate)(void **, unsigned long) = dlsym(library, "cudaMalloc");
	printf("= 0 0 %d\n", allocate(&out, 1 << 20));
	return 0;
}
`

// Calls of NVIDIA's runtime to NVIDIA's driver must be seen: each function that the runtime looks
// up is exported, and has a probe if the table has its name.
func TestRealRuntimesLookUpFunctionsThatAreProbed(t *testing.T) {
	dir := t.TempDir()
	for name, build := range map[string]struct {
		source  string
		options []string
	}{"libcuda.so.1": {listener, []string{"-shared", "-fPIC"}}, "starter": {starter, nil}} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".c", []byte(build.source), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("gcc", append(build.options, "-o", path, path+".c", "-ldl")...).CombinedOutput(); err != nil {
			t.Skipf("gcc: %v\n%s", err, out)
		}
	}
	for _, driver := range realLibraries(t, cudaapi.Driver) {
		if driver.exports["cuGetProcAddress"].Name == "" {
			continue
		}
		for _, runtime := range realLibraries(t, cudaapi.Runtime) {
			if slices.Compare(runtime.version, []int{11, 3}) >= 0 { // older ones look up names of exports
				driver.checkLookups(t, dir, runtime)
			}
		}
	}
}

// noDevice is cudaErrorNoDevice: the runtime has looked up all functions, and the driver has not
// found a GPU.
const noDevice = 100

func (l *realLibrary) checkLookups(t *testing.T, dir string, runtime *realLibrary) {
	command := exec.Command(filepath.Join(dir, "starter"), runtime.path)
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "DRIVER="+l.path)
	out, err := command.Output()
	if err != nil {
		t.Logf("%s on %s cannot be loaded here: %v", runtime.name, l.name, err)
		return
	}
	probed, rows, exported := map[int64]string{}, map[string]bool{}, map[int64]bool{}
	for _, at := range l.rows.Found {
		probed[int64(at.Symbol)] = at.Name
	}
	for _, row := range cudaapi.Table {
		if row.Layer == cudaapi.Driver {
			rows[entrySuffix.ReplaceAllString(row.Name, "")] = true
		}
	}
	for _, s := range l.exports {
		exported[int64(s.Value)] = true
	}
	answers, ours, result := 0, map[string]bool{}, int64(-1)
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		var name string
		var version, flags int
		var offset int64
		if _, err := fmt.Sscan(lines.Text(), &name, &version, &flags, &offset); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if name == "=" {
			result = offset
			continue
		}
		answers++
		switch {
		case !exported[offset]:
			t.Errorf("%s on %s: %s of version %d is not exported", runtime.name, l.name, name, version)
		case rows[name] && probed[offset] == "":
			t.Errorf("%s on %s: %s of version %d has no probe", runtime.name, l.name, name, version)
		case rows[name]:
			ours[probed[offset]] = true
		}
	}
	if len(ours) == 0 && result == noDevice {
		t.Errorf("%s on %s looks up no function of the table", runtime.name, l.name)
	}
	t.Logf("%-24s on %-24s looks up %d exported functions, %d of them in the table; cudaMalloc returns %d", runtime.name, l.name, answers, len(ours), result)
}
