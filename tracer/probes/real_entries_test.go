// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/cudaapi"
)

// entryAsker looks up each name in a driver for all versions of CUDA and stream modes, as runtimes
// do, with both functions. Neither needs cuInit or a GPU. It prints "NAME FUNCTION VERSION FLAGS
// OFFSET" lines, with the offset from the library's first mapping.
const entryAsker = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
int main(int n, char **argument)
{
	void *library = dlopen(argument[1], RTLD_NOW);
	if (!library)
		return fprintf(stderr, "%s\n", dlerror()), 1;
	int (*first)(const char *, void **, int, uint64_t) = dlsym(library, "cuGetProcAddress");
	int (*second)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");
	for (int i = 2; i < n; i++)
		for (int version = 2000; version < 15000; version += version % 1000 == 90 ? 910 : 10)
			for (int flags = 0; flags <= 2; flags++)
				for (int both = 0; both < 2; both++) {
					void *found = 0;
					int status = 0;
					if (both ? !second : !first)
						continue;
					if (both ? second(argument[i], &found, version, flags, &status) : first(argument[i], &found, version, flags))
						continue;
					Dl_info info;
					if (found) /* the second says with status that there is none */
						printf("%s %d %d %d %ld\n", argument[i], both, version, flags,
							dladdr(found, &info) ? (long)((char *)found - (char *)info.dli_fbase) : -1);
				}
	return 0;
}
`

// entryFlags are the stream modes of cuGetProcAddress.
var entryFlags = []string{"default", "legacy stream", "stream of the thread"}

// entrySuffix is the suffix of exported names that names in cuda.h lack.
var entrySuffix = regexp.MustCompile(`(_v[0-9]+)?(_ptsz|_ptds)?$`)

// A runtime calls the functions that cuGetProcAddress returns. For every version and stream mode
// for which the runtime may be built, they must be exported functions with a probe.
func TestRealEntryPointsAreTheFunctionsProbed(t *testing.T) {
	program := filepath.Join(t.TempDir(), "asker")
	if err := os.WriteFile(program+".c", []byte(entryAsker), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-o", program, program+".c", "-ldl").CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	for _, l := range realLibraries(t, cudaapi.Driver) {
		if l.exports["cuGetProcAddress"].Name == "" {
			t.Logf("%-24s has no cuGetProcAddress", l.name)
			continue
		}
		l.checkEntries(t, program)
	}
}

func (l *realLibrary) checkEntries(t *testing.T, program string) {
	var names []string
	for _, row := range cudaapi.Table {
		if row.Layer == cudaapi.Driver {
			names = append(names, row.Name, entrySuffix.ReplaceAllString(row.Name, ""))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	command := exec.Command(program, append([]string{l.path}, names...)...)
	said := &strings.Builder{}
	command.Stderr = said
	out, err := command.Output()
	if err != nil {
		t.Logf("%-24s cannot be loaded here: %v: %s", l.name, err, said)
		return
	}
	probed := map[int64]string{}
	for _, at := range l.rows.Found {
		probed[int64(at.Symbol)] = at.Name
	}
	exported := map[int64]string{}
	for name, s := range l.exports {
		exported[int64(s.Value)] = name
	}
	asked, answers, given := map[string]bool{}, 0, map[string]bool{}
	wrong := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		var name string
		var function, version, flags int
		var offset int64
		if _, err := fmt.Sscan(lines.Text(), &name, &function, &version, &flags, &offset); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		answers++
		asked[name] = true
		got := probed[offset]
		if got != "" && entrySuffix.ReplaceAllString(got, "") == entrySuffix.ReplaceAllString(name, "") {
			given[got] = true
			continue
		}
		what := "a function that is not exported"
		if exported[offset] != "" {
			what = exported[offset] + ", which has no row"
		}
		wrong[fmt.Sprintf("%s (%s): %s", name, entryFlags[flags], what)]++
	}
	for text, n := range wrong {
		t.Errorf("%s: cuGetProcAddress returns %d times for %s", l.name, n, text)
	}
	if answers == 0 {
		t.Errorf("%s: cuGetProcAddress returns no function of the table", l.name)
	}
	var never []string
	for _, at := range l.rows.Found {
		if !given[at.Name] {
			never = append(never, at.Name)
		}
	}
	t.Logf("%-24s %d answers for %d names, all with a probe: %d of %d functions, never %v", l.name, answers, len(asked), len(given), len(l.rows.Found), never)
}
