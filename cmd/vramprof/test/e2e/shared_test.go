// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportedMemoryNamesItsOwner, and that the owner has ended.
func TestImportedMemoryNamesItsOwner(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	handle := filepath.Join(t.TempDir(), "handle")
	owner := startTarget(t, env, dir.Program("calls_c"), writeFile(t, "owner", "cudaFree 0\nready\nwait\ncudaMalloc a 3M\ncudaIpcGetMemHandle "+handle+" a\nprint shared\nwait\n"))
	owner.expectReady()
	user := startTarget(t, env, dir.Program("calls_c"), writeFile(t, "user", "cudaFree 0\nready\nwait\ncudaIpcOpenMemHandle a "+handle+"\nprint open\nwait\n"))
	user.expectReady()
	pids := []string{"-p", fmt.Sprint(owner.pid()), "-p", fmt.Sprint(user.pid())}
	l, s := startLeaks(t, env, pids...).ready(), startRecord(t, env, pids...).ready()
	owner.next()
	owner.expect("shared")
	user.next()
	user.expect("open")
	owner.end()
	r, p := l.stop().leaks(), s.stop().profile()
	text := strings.Join(strings.Fields(s.stdout.String()), " ")
	user.end()
	checkNoLosses(t, r)
	named := false
	for _, x := range r.Sites {
		if x.Kind != "imported" {
			continue
		}
		named = len(x.Owners) == 1 && int(x.Owners[0].PID) == owner.pid() && x.Owners[0].API == "cudaMalloc" && hasFrame(x.Owners[0].Stack, "run_script")
		if !named {
			t.Errorf("owners %+v of %+v, want process %d", x.Owners, x, owner.pid())
		}
	}
	if !named {
		t.Errorf("sites %+v, want imported memory with its owner", r.Sites)
	}
	if want := fmt.Sprintf("owned by calls_c [%d], allocated at ", owner.pid()); !strings.Contains(text, want) {
		t.Errorf("the summary lacks %q:\n%s", want, text)
	}
	if want := fmt.Sprintf("calls_c [%d] has imported 3.00 MiB of calls_c [%d], which has ended: the GPU may keep ", user.pid(), owner.pid()); !strings.Contains(text, want) {
		t.Errorf("the summary lacks %q:\n%s", want, text)
	}
	named = false
	for _, x := range p.Sample {
		named = named || label(x, "kind") == "imported" && len(x.NumLabel["owner_pid"]) == 1 && int(x.NumLabel["owner_pid"][0]) == owner.pid() && strings.Contains(label(x, "owner_site"), "call")
	}
	if !named {
		t.Error("no sample of the profile names the owner")
	}
}
