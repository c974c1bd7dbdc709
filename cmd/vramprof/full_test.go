// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestTextThatCannotBeWrittenIsAnError: a script that keeps help, a page, or the version in a file
// must notice that the disk is full.
func TestTextThatCannotBeWrittenIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range []string{
		"", "--help", "-h", "help", "help record", "help planes", "help leaks", "record --help", "top -h", "--version", "version",
		completeWord, completeWord + " help ", completeWord + " record -", completeWord + " report --view ",
	} {
		var errors bytes.Buffer
		words := []string{"vramprof"}
		if args != "" {
			words = append(words, strings.Split(args, " ")...)
		}
		if code := run(words, full, &errors); code != exitError || !strings.Contains(errors.String(), "no space left on device") || strings.Count(errors.String(), "\n") != 1 {
			t.Errorf("vramprof %s >/dev/full: exit code %d, %q", args, code, errors.String())
		}
		var out bytes.Buffer
		errors.Reset()
		if code := run(words, &out, &errors); code != exitDone || out.Len() == 0 || errors.Len() > 0 {
			t.Errorf("vramprof %s: exit code %d, %d bytes, %q", args, code, out.Len(), errors.String())
		}
	}
}

// TestACommandThatReadsOneProcessTakesNoSecond: the library would read the last one only.
func TestACommandThatReadsOneProcessTakesNoSecond(t *testing.T) {
	for _, command := range []string{"holders", "explain", "snapshot", "check"} {
		for args, want := range map[string]string{
			"-p 4194304 --pid 4194305":      "it reads one process, and 4194304 was named before",
			"-p x":                          "it is not a process id",
			"-p 0":                          "it is not a process id",
			"-p 4194304 -p 4194304":         "4194304",
			"--pid=4194304 --no-such-thing": "unknown flag",
		} {
			var out, errors bytes.Buffer
			code := run(append([]string{"vramprof", command}, strings.Split(args, " ")...), &out, &errors)
			if wanted := map[bool]int{true: exitError, false: exitUsage}[want == "4194304"]; code != wanted || !strings.Contains(errors.String(), want) || out.Len() > 0 {
				t.Errorf("vramprof %s %s: exit code %d, want %d: %q%s", command, args, code, wanted, out.String(), errors.String())
			}
		}
	}
}
