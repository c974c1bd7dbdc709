// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCompletionListsCommandsAndFlagsAndElseFiles(t *testing.T) {
	mapCUDA(t)
	for _, c := range []struct{ words, has string }{
		{"", "report\t"}, {"rep", "report\t"}, {"report --", "--view\t"}, {"report run.vram --", "--view\t"}, {"record -", "-p\t"},
		{"help ", "leaks\t"}, {"help ", "planes\t"}, {"report ", ""}, {"report --view ", "tree\t"}, {"report --view ta", "table\t"}, {"record --tensors ", "auto\t"}, {"record --tensors ", "off\t"}, {"export -f ", "folded\t"},
		{"record --holders ", "end\t"}, {"compare --by ", "file\t"}, {"top --sort ", "before\t"}, {"record -o ", ""}, {"record -d ", ""}, {"record -- -", ""}, {"bogus -", ""},
		{"report --view=", "--view=tree\t"}, {"report --view=ta", "--view=table\t"}, {"report --html=", ""}, {"report --bogus=", ""}, {"report --at ", "peak\t"}, {"compare --at=", "--at=end\t"},
		{"record --for ", "whatif\t"}, {"holders --device ", "cuda:0\t"}, {"explain -p ", fmt.Sprintf("%d\t", os.Getpid())}, {"record --pid=", fmt.Sprintf("--pid=%d\t", os.Getpid())},
	} {
		var out, errors bytes.Buffer
		run(append([]string{"vramprof", completeWord}, strings.Split(c.words, " ")...), &out, &errors)
		if c.has == "" && out.Len() > 0 || !strings.Contains("\n"+out.String(), "\n"+c.has) || errors.Len() > 0 {
			t.Errorf("%q: %q, want %q; %s", c.words, out.String(), c.has, errors.String())
		}
	}
}

// mapCUDA makes this process one that maps a file with the name of a library of CUDA.
func mapCUDA(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcudart.so.12")
	if err := os.WriteFile(path, make([]byte, os.Getpagesize()), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
}

// typed is what a person types at a shell, with \t for the key of completion, and the arguments
// that vramprof gets.
var typed = []struct{ line, want string }{
	{"vramprof rep\t", "report"},
	{"vramprof report --view ta\t", "report --view table"},
	{"vramprof report --view=ta\t", "report --view=table"},
	{"vramprof report run.vram --vi\t", "report run.vram --view"},
	{"vramprof report yester\t", "report yesterday.vram"},
	{"vramprof report --html=yester\t", "report --html=yesterday.vram"},
	{"vramprof report yesterday.vram --at pe\t", "report yesterday.vram --at peak"},
	{"vramprof record --for w\t", "record --for whatif"},
	{"vramprof holders --device cu\t", "holders --device cuda:0"},
	{"vramprof holders --device cuda:\t", "holders --device cuda:0"},
	{"vramprof holders --device=cuda:\t", "holders --device=cuda:0"},
	{"vramprof explain -p 42\t", "explain -p 4242"}, // its command line is hostile: see completionStub
	{"vramprof explain --pid=42\t", "explain --pid=4242"},
}

// completionStub writes its arguments into the file "ran", or completes as vramprof does. The
// process that it offers has a hostile command line.
const completionStub = `#!/bin/bash
case "$1 $3" in
"__complete -p") printf '4242\t%s\n' "$(cat hostile)"; exit ;;
"__complete --pid=42") printf -- '--pid=4242\t%s\n' "$(cat hostile)"; exit ;;
__complete*) exec VRAMPROF "$@" ;;
esac
echo "$*" >ran.new
mv ran.new ran
`

const hostile = `python3 a:b $(touch owned) ` + "`touch owned`" + ` [x]* 'q "r \\ {1,2} ~ ;touch owned`

// completionFolder returns a folder with a file, a stub of vramprof in bin, and the environment of
// a shell in which it is first.
func completionFolder(t *testing.T) (dir string, env []string) {
	t.Helper()
	vramprof, err := exec.LookPath("vramprof")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, text := range map[string]string{"bin/vramprof": strings.ReplaceAll(completionStub, "VRAMPROF", vramprof), "hostile": hostile, "yesterday.vram": ""} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "TERM=dumb", "HISTFILE=")
}

// TestShellsComplete: bash and zsh on a terminal, and fish, complete commands, options, values in
// both notations, processes and files, and run nothing that the command line of a process says.
func TestShellsComplete(t *testing.T) {
	completions, err := filepath.Abs(packaging + "/completions")
	if err != nil {
		t.Fatal(err)
	}
	for shell, start := range map[string]string{
		"bash": "bind 'set bell-style none'; source " + completions + "/vramprof.bash",
		"zsh":  "mkdir functions; cp " + completions + "/vramprof.zsh functions/_vramprof; fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D",
	} {
		t.Run(shell, func(t *testing.T) {
			for _, program := range []string{shell, "script"} {
				if _, err := exec.LookPath(program); err != nil {
					t.Skip("no program " + program)
				}
			}
			dir, env := completionFolder(t)
			options := map[string]string{"bash": "--norc --noprofile -i", "zsh": "-f -i"}[shell]
			cmd := exec.Command("script", "-qec", shell+" "+options, "/dev/null")
			var screen stream
			cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &screen, &screen
			keys, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				keys.Close()
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			enter := func(line string) string {
				t.Helper()
				if _, err := io.WriteString(keys, line+"\n"); err != nil {
					t.Fatalf("%v\n%s", err, screen.String())
				}
				ran := filepath.Join(dir, "ran")
				for deadline := time.Now().Add(scriptPatience); ; time.Sleep(5 * time.Millisecond) {
					if text, err := os.ReadFile(ran); err == nil {
						if err := os.Remove(ran); err != nil {
							t.Fatal(err)
						}
						return strings.TrimSpace(string(text))
					}
					if time.Now().After(deadline) {
						t.Fatalf("%q runs nothing:\n%s", line, screen.String())
					}
				}
			}
			enter(start + "; vramprof ready")
			for _, x := range typed {
				if got := enter(x.line); got != x.want {
					t.Errorf("%q runs %q, want %q", x.line, got, x.want)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "owned")); err == nil {
				t.Error("the command line of a process was run")
			}
		})
	}
	t.Run("fish", func(t *testing.T) {
		if _, err := exec.LookPath("fish"); err != nil {
			t.Skip("no program fish")
		}
		dir, env := completionFolder(t)
		for _, x := range typed {
			cmd := exec.Command("fish", "--no-config", "--command", "source "+completions+"/vramprof.fish; complete --do-complete $argv[1]", strings.ReplaceAll(x.line, "\t", ""))
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.CombinedOutput()
			want := x.want[strings.LastIndexByte(x.want, ' ')+1:]
			var words []string
			for line := range strings.Lines(string(out)) {
				word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
				words = append(words, word)
			}
			if err != nil || !slices.Contains(words, want) {
				t.Errorf("%q: %v, %q, want %q", x.line, err, words, want)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "owned")); err == nil {
			t.Error("the command line of a process was run")
		}
	})
}
