// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// makeBundle writes bundles from answers in which every text has a secret, and prints all files.
const makeBundle = `
import sys, tarfile
sys.path.insert(0, "..")
from gpucheck.answers import Answers
def files(a, path):
    a.bundle(path, "\nmore\n")
    with tarfile.open(path) as archive:
        for m in archive.getmembers():
            print(m.name, m.uid, m.uname, m.mtime)
            print(archive.extractfile(m).read().decode())
a = Answers(hide=["gpuhost7", "mallory", "secretprog"])
a.describe(driver="550.1 gpuhost7", gpus="NVIDIA H100 of Mallory, GPU-11112222-3333-4444-5555-666677778888", kernel="6.8.0-gpuhost7 /home/mallory", cpus=4, pytorch="2.6\033[31m")
a.take_checks("ok    kernel          Linux 6.8 on gpuhost7\nwarn  NVIDIA driver   /home/mallory/x\nfail  processes\nsecretprog says something\n")
entries = dict(names=1, functions=["cuMemAlloc_v2"], never=[], unprobed=[], answers=[], library="../../home/mallory/libcuda.so.1")
library = dict(name="libcudart-80664282.so.10.2", layer="runtime", program=False, pids=[4242], functions=[], missing=[], path="/home/mallory")
function = dict(function="cudaMalloc", probe_offset=0, emulated=True, instructions="push", first_bytes="4157", where="gpuhost7")
a.take_libraries(dict(version=1, more=0, entries=entries, libraries=[library, dict(library, name="secretprog", program=True, functions=[function]),
    dict(library, name="libmallory.so.secretprog"), dict(library, error="open /home/mallory/libcuda.so.1: no such file")]))
a.add("is it right", "yes", True)
files(a, sys.argv[1])
files(Answers(), sys.argv[1])
`

func TestTheBundleNamesNobody(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(python, "-B", "-c", makeBundle, filepath.Join(t.TempDir(), "bundle.tar.gz"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	host, _ := os.Hostname()
	for _, secret := range []string{"gpuhost7", "mallory", "secretprog", "/home", "4242", "11112222", "\x1b", t.TempDir()} {
		if strings.Contains(strings.ToLower(text), secret) {
			t.Errorf("the bundle has %q:\n%s", secret, text)
		}
	}
	if len(host) > 3 && regexp.MustCompile(`(?i)\b`+regexp.QuoteMeta(host)+`\b`).MatchString(text) {
		t.Errorf("the bundle has this host's name:\n%s", text)
	}
	for _, want := range []string{
		"libcudart-80664282.so.10.2", `"name": "a program"`, `"first_bytes": "4157"`, `"NVIDIA driver": "warn"`, `"processes": "fail"`, "NVIDIA H100 of (removed)",
		"contents.txt 0  0", "table.txt", "answers.json", "checks.json", "libraries.json", "agrees    is it right",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the bundle lacks %q:\n%s", want, text)
		}
	}
}

// TestContentsListsEachFile compares contents.txt with what is written.
func TestContentsListsEachFile(t *testing.T) {
	source, err := os.ReadFile("answers.py")
	if err != nil {
		t.Fatal(err)
	}
	_, contents, _ := strings.Cut(string(source), `CONTENTS = """`)
	contents, _, _ = strings.Cut(contents, `"""`)
	files := regexp.MustCompile(`"([a-z]+\.(?:txt|json))":`).FindAllStringSubmatch(string(source), -1)
	if len(files) != 5 {
		t.Fatalf("found %q", files)
	}
	for _, f := range files {
		if f[1] != "contents.txt" && !strings.Contains(contents, "\n"+f[1]+" ") {
			t.Errorf("contents.txt does not describe %s", f[1])
		}
	}
}
