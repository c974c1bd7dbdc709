// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompletionListsCommandsAndFlagsAndElseFiles(t *testing.T) {
	for _, c := range []struct{ words, has string }{
		{"", "report\t"}, {"rep", "report\t"}, {"report --", "--view\t"}, {"report run.vram --", "--view\t"}, {"record -", "-p\t"},
		{"help ", "leaks\t"}, {"help ", "planes\t"}, {"report ", ""}, {"report --view ", "tree\t"}, {"report --view ta", "table\t"}, {"record --tensors ", "auto\t"}, {"record --tensors ", "off\t"}, {"export -f ", "folded\t"},
		{"record --holders ", "end\t"}, {"compare --by ", "file\t"}, {"top --sort ", "before\t"}, {"record --for ", ""}, {"record -o ", ""}, {"record -d ", ""}, {"record -- -", ""}, {"bogus -", ""},
	} {
		var out, errors bytes.Buffer
		run(append([]string{"vramprof", completeWord}, strings.Split(c.words, " ")...), &out, &errors)
		if c.has == "" && out.Len() > 0 || !strings.Contains("\n"+out.String(), "\n"+c.has) || errors.Len() > 0 {
			t.Errorf("%q: %q, want %q; %s", c.words, out.String(), c.has, errors.String())
		}
	}
}

func TestCompletionOfBashOffersCommands(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	dir := t.TempDir()
	stub := "#!/bin/sh\nprintf 'record\\ttrace\\nreport\\tshow a capture\\nleaks\\tjudge\\n'\n"
	if err := os.WriteFile(filepath.Join(dir, "vramprof"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	script := `source ` + packaging + `/completions/vramprof.bash; COMP_WORDS=(` + dir + `/vramprof rep); COMP_CWORD=1; _vramprof; echo "${COMPREPLY[*]}"`
	out, err := exec.Command(bash, "--norc", "-c", script).CombinedOutput()
	if err != nil || string(out) != "report\n" {
		t.Errorf("%v: %q", err, out)
	}
}
