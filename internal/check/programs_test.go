// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vramprof/vramprof/tracer/preflight"
)

func TestCheckNamesTheProgramThatTheKernelRejects(t *testing.T) {
	r := programsResult(func() error {
		return errors.New("load the unwinder's steps: program kprobe_unwind_python: argument list too long\n0: R1=ctx()")
	})
	var out bytes.Buffer
	writeResult(&out, r, 80)
	const want = "fail  programs        the programs do not load: load the unwinder's steps:\n" +
		"                      program kprobe_unwind_python: argument list too long\n" +
		"                      → use a kernel that vramprof help kernels lists as tested,\n" +
		"                        and report this with uname -r\n"
	if out.String() != want || preflight.ExitCode([]preflight.Result{r}) != preflight.ExitMissing {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
	if r := programsResult(func() error { return nil }); r.Status != preflight.OK || r.Code != 0 {
		t.Errorf("without an error: %+v", r)
	}
}
