// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// FuzzWorkload builds a workload from a hostile environment, control group and kubelet folder:
// every value is within the length limit and has no control characters.
func FuzzWorkload(f *testing.F) {
	const uid = "2c0d0b5e-1f5b-4f0a-9d0e-0123456789ab"
	f.Add("RANK=3\x00LOCAL_RANK=1\x00WORLD_SIZE=8\x00SLURM_JOB_ID=12\x00SLURM_JOB_NAME=llama", "0::/kubepods/burstable/pod"+uid+"/"+strings.Repeat("a", 64), "ml_llama-1_"+uid)
	f.Add("POD_NAME=\x1b[31m\u202ex\x00JOB_NAME="+strings.Repeat("很", 400)+"\x00HOSTNAME=h", "1:memory:/slurm/uid_0/job_77/step_batch", "a_b_c_d")
	f.Add("KUBERNETES_SERVICE_HOST=1\x00RANK=-1\x00RANK=99999999999", `0::/machine.slice/machine-\x1b\x5b31m.scope`, "__")
	f.Fuzz(func(t *testing.T, environ, cgroup, entry string) {
		if id, name, ok := parseContainer(entry); ok && (containerID(id) == "" || name == "") {
			t.Errorf("container %q of %q", name, entry)
		}
		w := ledger.Workload{PodContainer: clean(entry), Actor: actor("ray::" + entry)}
		checkClean(t, w)
		pods := func(uid string) (string, string) {
			found, name, ok := parsePod(entry)
			if !ok || found != uid {
				return "", ""
			}
			return name.namespace, name.pod
		}
		w = Parse([]byte(cgroup), strings.Split(environ, "\x00"), "host", pods)
		for _, s := range []string{w.Container, w.Pod, w.Namespace, w.Job, w.Rank, w.LocalRank, w.WorldSize} {
			if len(s) > maxValue || untrusted.Clean(s) != s {
				t.Errorf("value %.300q", s)
			}
		}
		for _, n := range []string{w.Rank, w.LocalRank, w.WorldSize} {
			if n != number(n) {
				t.Errorf("number %q", n)
			}
		}
	})
}
