// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// FuzzRoot opens a hostile name in the process's root: the opened file must be inside.
func FuzzRoot(f *testing.F) {
	dir := f.TempDir()
	for name, text := range map[string]string{"secret": "x", "root/tmp/perf-1.map": "10 10 f\n", "root/lib/libcuda.so.1": "x"} {
		if err := os.MkdirAll(dir+"/"+name[:strings.LastIndexByte(name, '/')+1], 0o755); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	for link, to := range map[string]string{"up": "../../../../../secret", "abs": dir + "/secret", "self": "/proc/self/root" + dir + "/secret", "loop": "loop"} {
		if err := os.Symlink(to, dir+"/root/"+link); err != nil {
			f.Fatal(err)
		}
	}
	for _, name := range []string{"/tmp/perf-1.map", "../secret", "/up", "/abs", "/self", "/loop", "/lib/../../secret", "//lib/libcuda.so.1", "", "\x00", "."} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		file, err := OpenIn(dir+"/root", name)
		if err != nil {
			return
		}
		defer file.Close()
		found, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
		if err != nil || !strings.HasPrefix(found, dir+"/root/") {
			t.Errorf("%q led to %q", name, found)
		}
	})
}
