// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// split builds plain.c and separates its debug file: root/opt/libplain.so is stripped and names
// libplain.debug as its debug file.
func split(t *testing.T, flags ...string) (root, lib, debug, buildID string) {
	t.Helper()
	original := compile(t, "plain.c", append([]string{"-O2", "-g"}, flags...)...)
	root = t.TempDir()
	lib, debug = filepath.Join(root, "opt", "libplain.so"), filepath.Join(root, "libplain.debug")
	if err := os.MkdirAll(filepath.Dir(lib), 0o700); err != nil {
		t.Fatal(err)
	}
	command(t, "objcopy", "--only-keep-debug", original, debug)
	command(t, "strip", "-o", lib, original)
	command(t, "objcopy", "--add-gnu-debuglink="+debug, lib)
	f, err := untrusted.OpenRegular(lib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := parseELF(f, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return root, lib, debug, b.buildID()
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestSeparateDebugFiles(t *testing.T) {
	const withID, withoutID = "-Wl,--build-id=sha1", "-Wl,--build-id=none"
	for _, tt := range []struct{ name, flag, place string }{
		{"by build id", withID, "usr/lib/debug/.build-id/ID"},
		{"beside the file", withoutID, "opt/libplain.debug"},
		{"in .debug", withoutID, "opt/.debug/libplain.debug"},
		{"below the debug root", withoutID, "usr/lib/debug/opt/libplain.debug"},
		{"by link despite a build id", withID, "opt/.debug/libplain.debug"},
	} {
		root, lib, debug, id := split(t, tt.flag)
		place := tt.place
		if id != "" {
			place = strings.Replace(place, "ID", id[:2]+"/"+id[2:]+".debug", 1)
		}
		address := symbolAddress(t, debug, "local_helper") + 1
		move(t, debug, filepath.Join(root, place))
		s, m := added(t, lib, Options{}, root)
		if err := os.RemoveAll(root); err != nil { // the process has exited and its files are gone
			t.Fatal(err)
		}
		f := s.AppendFrames(nil, lib, m, address)[0]
		if f.Function != "local_helper" || filepath.Base(f.File) != "plain.c" || f.Line == 0 || f.StartLine != 5 {
			t.Errorf("%s: got %+v", tt.name, f)
		}
	}
}

// The kernel writes the paths of a process in a chroot with the folder of the chroot in front.
func TestTheDebugFileOfAProcessInAChrootIsFound(t *testing.T) {
	for _, place := range []string{"opt/.debug/libplain.debug", "usr/lib/debug/opt/libplain.debug"} {
		folder, lib, debug, _ := split(t, "-Wl,--build-id=none")
		address := symbolAddress(t, debug, "local_helper") + 1
		move(t, debug, filepath.Join(folder, place))
		root := filepath.Join(t.TempDir(), "root")
		if err := os.Symlink(folder, root); err != nil {
			t.Fatal(err)
		}
		s, m := added(t, lib, Options{}, root)
		if f := s.AppendFrames(nil, lib, m, address)[0]; m.Path != lib || f.Function != "local_helper" {
			t.Errorf("%s of %s: got %+v", place, m.Path, f)
		}
	}
}

func TestForeignDebugFileIsRefused(t *testing.T) {
	for _, flag := range []string{"-Wl,--build-id=sha1", "-Wl,--build-id=none"} {
		root, lib, debug, _ := split(t, flag)
		address := symbolAddress(t, debug, "local_helper") + 1
		_, _, foreign, _ := split(t, flag, "-DOTHER", "-O1")
		move(t, foreign, filepath.Join(root, "opt", "libplain.debug"))
		s, m := added(t, lib, Options{}, root)
		if f := s.AppendFrames(nil, lib, m, address)[0]; f.File != "" || f.Function == "local_helper" {
			t.Errorf("%s: frames from another build's debug file: %+v", flag, f)
		}
	}
}

// TestDebugFileLinksStayInRoot plants a symbolic link that leads out of the process's root if it is
// resolved against the host's root.
func TestDebugFileLinksStayInRoot(t *testing.T) {
	root, lib, debug, id := split(t, "-Wl,--build-id=sha1")
	address := symbolAddress(t, debug, "local_helper") + 1
	outside := filepath.Join(t.TempDir(), "outside.debug")
	move(t, debug, outside)
	place := filepath.Join(root, "usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, place); err != nil {
		t.Fatal(err)
	}
	s, m := added(t, lib, Options{}, root)
	if f := s.AppendFrames(nil, lib, m, address)[0]; f.Line != 0 {
		t.Errorf("a symbolic link escaped the root: %+v", f)
	}
}

// TestSharedDebugFile resolves names from a file that dwz extracted from two others.
func TestSharedDebugFile(t *testing.T) {
	needTools(t, "dwz")
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.so"), filepath.Join(dir, "b.so")
	for _, to := range []string{a, b} {
		move(t, compile(t, "inline.cc", "-O2", "-gdwarf-4"), to)
	}
	reference := compile(t, "inline.cc", "-O2", "-gdwarf-4")
	command(t, "dwz", "-m", filepath.Join(dir, "common.debug"), a, b)
	compare(t, a, reference)
}
