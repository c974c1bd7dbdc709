// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/pprof/profile"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/libraries"
)

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"start": start, "stuck": stuck, "torch": torch, "await": await, "signal": sendSignal, "interrupt": interrupt, "ends": ends, "exits": exits, // script_programs_test.go
	"alone": alone, "profile": checkProfile, "keys": keys, "schema": checkSchema, "fits": fits, "mode": mode,
	"tmpfs": tmpfs, "fifo": fifo, "device": device, "fill": fill, "pause": pause,
}

// alone CODE PROGRAM [ARGUMENTS]: exits, at a moment when no process of the machine uses CUDA.
func alone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: alone CODE PROGRAM [ARGUMENTS]")
	}
	quiet := func() bool {
		list, _, err := libraries.List()
		ts.Check(err)
		return len(list) == 0
	}
	wrong := 0 // a process may have existed only in between
	for end := time.Now().Add(scriptPatience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if !quiet() {
			continue
		}
		err := ts.Exec(args[1], args[2:]...)
		var ended *exec.ExitError
		if errors.As(err, &ended) && fmt.Sprint(ended.ExitCode()) == args[0] {
			return
		}
		if !quiet() {
			continue
		}
		if wrong++; wrong == 3 {
			ts.Fatalf("%s: %v, want exit code %s", args[1], err, args[0])
		}
	}
	ts.Value(programsKey{}).(*programs).t.Skip("other processes use CUDA all the time")
}

// profile FILE: checks a pprof file, and prints it as text.
func checkProfile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: profile FILE")
	}
	p, err := profile.ParseData([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(p.CheckValid())
	fmt.Fprint(ts.Stdout(), p.String())
}

// schema NAME FILE: checks a JSON file against docs/schema/NAME.
func checkSchema(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: schema NAME FILE")
	}
	ts.Check(validate(args[0], []byte(ts.ReadFile(args[1]))))
}

// keys FILE: prints every key of a JSON file once, as "sites[].stack[].line".
func keys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keys FILE")
	}
	var value any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &value))
	list := map[string]bool{}
	collectKeys(list, "", value)
	for _, key := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintln(ts.Stdout(), key)
	}
}

func collectKeys(list map[string]bool, at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			collectKeys(list, strings.TrimPrefix(at+"."+name, "."), member)
		}
	case []any:
		list[at+"[]"] = true
		for _, element := range v {
			if _, isObject := element.(map[string]any); isObject {
				delete(list, at+"[]")
				collectKeys(list, at+"[]", element)
			}
		}
	default:
		list[at] = true
	}
}

// fits COLUMNS FILE: no line is longer, and no control character is in it.
func fits(ts *testscript.TestScript, neg bool, args []string) {
	var columns int
	if len(args) == 2 {
		_, _ = fmt.Sscan(args[0], &columns)
	}
	if neg || columns == 0 {
		ts.Fatalf("usage: fits COLUMNS FILE")
	}
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > columns {
			ts.Fatalf("%d columns, want at most %d: %s", n, columns, line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			ts.Fatalf("a control character: %q", line)
		}
	}
}

// mode FILE MODE: checks permissions, as in "mode out.pb.gz 0600".
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode FILE MODE")
	}
	st, err := os.Lstat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", st.Mode().Perm()); got != args[1] || !st.Mode().IsRegular() {
		ts.Fatalf("%s has mode %v, want a regular file with %s", args[0], st.Mode(), args[1])
	}
}

// tmpfs DIR OPTIONS: mounts a file system of its own, as in "tmpfs small size=64k".
func tmpfs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tmpfs DIR size=SIZE|ro")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	flags, options := uintptr(0), args[1]
	if options == "ro" {
		flags, options = unix.MS_RDONLY, ""
	}
	ts.Check(unix.Mount("tmpfs", dir, "tmpfs", flags, options))
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// fill FILE: writes until the file system is full.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fill FILE")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	for block := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		ts.Fatalf("fill %s: %v", args[0], err)
	}
}

// fifo PATH: creates a FIFO without a writer; it is removed at the end.
func fifo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fifo PATH")
	}
	path := ts.MkAbs(args[0])
	ts.Check(unix.Mkfifo(path, 0o644))
	ts.Defer(func() { os.Remove(path) })
}

// device PATH: creates a device like /dev/zero.
func device(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: device PATH")
	}
	ts.Check(unix.Mknod(ts.MkAbs(args[0]), unix.S_IFCHR|0o644, zeroDevice))
}

// pause DURATION: sleeps, where a script depends on time.
func pause(ts *testscript.TestScript, neg bool, args []string) {
	d, err := time.ParseDuration(strings.Join(args, ""))
	ts.Check(err)
	time.Sleep(d)
}

// mapLibrary is the program "maplibrary FILE…": it maps files as a dynamic
// loader would, whatever they contain, and stays.
func mapLibrary() {
	for _, path := range os.Args[1:] {
		f, err := os.Open(path)
		if err == nil {
			_, err = unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "maplibrary:", err)
			os.Exit(1)
		}
		f.Close()
	}
	fmt.Println("ready", os.Getpid())
	time.Sleep(time.Hour)
}
