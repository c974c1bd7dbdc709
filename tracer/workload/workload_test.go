// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func unknown(string) (string, string) { return "", "" }

func known(of string) (string, string) {
	if of == uid {
		return "ml", "llama-0"
	}
	return "", ""
}

func TestContainersAndPods(t *testing.T) {
	inPod := "0::" + slices + "/cri-containerd-" + id + ".scope\n"
	for _, c := range []struct {
		name, cgroup string
		pods         func(string) (string, string)
		environ      string
		want         ledger.Workload
	}{
		{"nothing", "0::/\n", known, "PATH=/bin HOSTNAME=box POD_NAME=fake", ledger.Workload{}},
		{"the kubelet's names come first", inPod, known, "POD_NAME=fake POD_NAMESPACE=fake HOSTNAME=fake", ledger.Workload{Container: id, Pod: "llama-0", Namespace: "ml"}},
		{"then the variables", inPod, unknown, "POD_NAME=llama-1 POD_NAMESPACE=ml HOSTNAME=other", ledger.Workload{Container: id, Pod: "llama-1", Namespace: "ml"}},
		{"then the host name", inPod, unknown, "HOSTNAME=llama-2", ledger.Workload{Container: id, Pod: "llama-2"}},
		{"but not the node's own", inPod, unknown, "HOSTNAME=node-7 POD_NAMESPACE=ml", ledger.Workload{Container: id, Pod: uid, Namespace: "ml"}},
		{"then the uid", inPod, unknown, "", ledger.Workload{Container: id, Pod: uid}},
		{"a pod without the kubelet's groups", "0::/" + id, unknown, "KUBERNETES_SERVICE_HOST=10.0.0.1 POD_NAME=llama-3 HOSTNAME=x", ledger.Workload{Container: id, Pod: "llama-3"}},
		{"Apptainer", "0::/user.slice\n", unknown, "APPTAINER_NAME=pytorch.sif", ledger.Workload{Container: "pytorch.sif"}},
		{"Singularity", "0::/user.slice\n", unknown, "APPTAINER_NAME= SINGULARITY_NAME=jax.sif", ledger.Workload{Container: "jax.sif"}},
		{"Apptainer in Docker", "0::/docker/" + id, unknown, "APPTAINER_NAME=pytorch.sif", ledger.Workload{Container: id}},
	} {
		if got := Parse([]byte(c.cgroup), strings.Fields(c.environ), "node-7", c.pods); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestJobs(t *testing.T) {
	const slurmGroup = "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n"
	for _, c := range []struct{ name, cgroup, environ, want string }{
		{"none", "", "PATH=/bin", ""},
		{"Slurm", "", "SLURM_JOB_ID=123 SLURM_JOB_NAME=llama", "llama (123)"},
		{"Slurm, older", "", "SLURM_JOBID=123", "123"},
		{"Slurm's group agrees", slurmGroup, "SLURM_JOB_ID=123 SLURM_JOB_NAME=llama", "llama (123)"},
		{"Slurm's group has priority", slurmGroup, "SLURM_JOB_ID=99 SLURM_JOB_NAME=other", "123"},
		{"Slurm's group alone", slurmGroup, "TORCHELASTIC_RUN_ID=run JOB_NAME=x", "123"},
		{"PBS", "", "PBS_JOBID=42.head PBS_JOBNAME=fit", "fit (42.head)"},
		{"LSF", "", "LSB_JOBID=7 LSB_JOBNAME=fit", "fit (7)"},
		{"Nomad, one for both", "", "NOMAD_JOB_ID=infer NOMAD_JOB_NAME=infer", "infer"},
		{"torchrun", "", "TORCHELASTIC_RUN_ID=llama-7", "llama-7"},
		{"torchrun without a name", "", "TORCHELASTIC_RUN_ID=none", ""},
		{"torchrun in Slurm", "", "TORCHELASTIC_RUN_ID=x SLURM_JOB_ID=5", "5"},
		{"Ray", "", "RAY_JOB_ID=02000000", "02000000"},
		{"Grid Engine", "", "JOB_ID=88 JOB_NAME=fit", "fit (88)"},
		{"a name alone", "", "JOB_NAME=nightly", "nightly"},
		{"the first of a name wins", "", "JOB_NAME=a JOB_NAME=b", "a"},
		{"no value", "", "SLURM_JOB_ID= SLURM_JOB_NAME JOB_NAME=x", "x"},
	} {
		if got := Parse([]byte(c.cgroup), strings.Fields(c.environ), "", unknown).Job; got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRanks(t *testing.T) {
	const batch = "0::/system.slice/slurmstepd.scope/job_1/step_batch/user/task_0\n"
	for _, c := range []struct{ name, cgroup, environ, want string }{
		{"none", "", "WORLD_SIZE=8", "//"},
		{"PyTorch", "", "RANK=11 LOCAL_RANK=3 WORLD_SIZE=16", "11/3/16"},
		{"rank 0", "", "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1", "0/0/1"},
		{"local rank alone", "", "LOCAL_RANK=3", "/3/"},
		{"torchrun under srun", "", "SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NTASKS=2 RANK=11 LOCAL_RANK=3 WORLD_SIZE=16", "11/3/16"},
		{"mpirun under srun", "", "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=2 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=8", "5/1/8"},
		{"srun", "", "SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NTASKS=8", "5/1/8"},
		{"a batch script is no task", batch, "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=8", "//"},
		{"mpirun in a batch script", batch, "SLURM_PROCID=0 SLURM_NTASKS=8 PMI_RANK=2 MPI_LOCALRANKID=0 PMI_SIZE=4", "2/0/4"},
		{"not mixed", "", "RANK=1 SLURM_LOCALID=3 SLURM_NTASKS=8", "1//"},
		{"no number", "", "RANK=one SLURM_PROCID=5", "5//"},
		{"no digits", "", "RANK=-1 LOCAL_RANK=+3 WORLD_SIZE=1_0", "//"},
		{"zeros", "", "RANK=007 WORLD_SIZE=00", "7//0"},
		{"too large", "", "RANK=4294967296", "//"},
		{"other digits", "", "RANK=٣", "//"},
	} {
		w := Parse([]byte(c.cgroup), strings.Fields(c.environ), "", unknown)
		if got := w.Rank + "/" + w.LocalRank + "/" + w.WorldSize; got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// checkClean checks that values for terminals and labels are short and have no control characters.
func checkClean(t *testing.T, w ledger.Workload) {
	t.Helper()
	fields := reflect.ValueOf(w)
	for i := range fields.NumField() {
		s := fields.Field(i).String()
		if len(s) > maxValue || !utf8.ValidString(s) || s != strings.TrimSpace(s) ||
			strings.ContainsFunc(s, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }) {
			t.Errorf("%s: %d bytes, %q", fields.Type().Field(i).Name, len(s), s)
		}
	}
}

func TestHostileValuesAreTruncatedAndCleaned(t *testing.T) {
	for _, value := range []string{"\x1b[31mred\nnext\x00", strings.Repeat("很", 5000), strings.Repeat("\x1b", 1<<20) + "x", "\xff\xfe", " \t\u202e x \u2028", strings.Repeat("9", 1<<16)} {
		var environ []string
		for name := range wanted {
			environ = append(environ, name+"="+value)
		}
		host := "0::/lxc.payload." + value + "\n"
		for _, cgroup := range []string{"", host, "0::" + slices} {
			checkClean(t, Parse([]byte(cgroup), environ, "", func(string) (string, string) { return value, value }))
		}
	}
	w := Parse([]byte("0::/lxc.payload."+strings.Repeat("很", 100)), nil, "", unknown)
	if want := strings.Repeat("很", 83) + "…"; w.Container != want {
		t.Errorf("got %q, want %q", w.Container, want)
	}
	if w := Parse(nil, []string{"SLURM_JOB_ID=123", "SLURM_JOB_NAME=" + strings.Repeat("n", 1000)}, "", unknown); !strings.HasSuffix(w.Job, "n… (123)") || len(w.Job) != maxValue {
		t.Errorf("a long name hides the number: %q", w.Job)
	}
}

func logFolder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLogFoldersNamePods(t *testing.T) {
	dir := logFolder(t, "ml_llama-0_"+uid, "kube-system_etcd-node_"+static, "no-uid", "a_b", "a_b_c_d")
	p := newPods()
	p.pods.dirs = []string{filepath.Join(dir, "missing"), dir}
	find := func(uid, want string) {
		t.Helper()
		if namespace, pod := p.pod(uid); namespace+"/"+pod != want {
			t.Errorf("%s: got %s/%s, want %s", uid, namespace, pod, want)
		}
	}
	find(uid, "ml/llama-0")
	find(static, "kube-system/etcd-node")
	find("late", "/")
	find("c", "/")
	if err := os.Mkdir(filepath.Join(dir, "ml_llama-1_late"), 0o755); err != nil {
		t.Fatal(err)
	}
	find("late", "ml/llama-1") // a pod that appeared after the folder was read
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	find(uid, "ml/llama-0") // its folder may disappear
}

func TestLogsNameContainersOfPods(t *testing.T) {
	long := strings.Repeat("n", 63)
	p := newPods()
	p.containers.dirs = []string{logFolder(t, "llama-0_ml_trainer-"+id+".log", "a.b_ml_"+long+"-1-"+outer+".log", "a_b_"+static+".log", "x_y_-"+strings.Repeat("0", 64)+".log",
		"x_y_"+strings.Repeat("1", 64)+".log", "x_y_z_u-"+strings.Repeat("2", 64)+".log", "-"+strings.Repeat("3", 64))}
	for id, want := range map[string]string{
		id: "trainer", outer: long + "-1", static: "", strings.Repeat("0", 64): "", strings.Repeat("1", 64): "", strings.Repeat("2", 64): "", strings.Repeat("3", 64): "",
	} {
		if got := p.container(id); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

func TestTitlesOfRayWorkersNameActors(t *testing.T) {
	for title, want := range map[string]string{
		"ray::Trainer": "Trainer", "ray::Trainer.step": "Trainer", "ray::Trainer.__init__()": "Trainer", "ray::Trainer.step::Exiting": "Trainer",
		"ray::load": "load", "ray::load()": "load", "ray::main.<locals>.load": "load", "ray::main.<locals>.load()": "load",
		"ray::IDLE": "", "ray::IDLE_SpillWorker": "", "ray::": "", "ray": "", "python3 ray::Trainer": "", "": "",
		"ray::\x1b[31mTrainer.step\n": "[31mTrainer", "ray::" + strings.Repeat("很", 5000): strings.Repeat("很", 83) + "…",
	} {
		if got := actor(title); got != want {
			t.Errorf("%.80q: got %q, want %q", title, got, want)
		}
	}
}

func TestFIFOAsLogFolderDoesNotBlock(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "pods")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		p := newPods()
		p.pods.dirs = []string{fifo, logFolder(t, "ml_llama-0_"+uid)}
		if _, pod := p.pod(uid); pod != "llama-0" {
			t.Errorf("got %q from the next folder, want llama-0", pod)
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the read waits for a writer")
	}
}

func TestHostReadsARunningProcess(t *testing.T) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"RANK=3", "WORLD_SIZE=8", "JOB_NAME=test"}
	h := NewHost()
	got, want := h.Read(uint32(os.Getpid()), environ, ""), Parse(text, environ, h.name, h.pods.pod)
	if got != want || got.Rank != "3" || got.WorldSize != "8" || got.Job == "" {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if w := h.Read(1<<31, nil, ""); w != (ledger.Workload{}) {
		t.Errorf("no such process: got %+v", w)
	}
}

// TestHostReadsARealControlGroup puts a process into groups with the kubelet's names.
func TestHostReadsARealControlGroup(t *testing.T) {
	pid := startIn(t, "kubepods/burstable/pod"+uid+"/"+id)
	h := NewHost()
	h.pods.pods.dirs = []string{logFolder(t, "ml_llama-0_"+uid)}
	h.pods.containers.dirs = []string{logFolder(t, "llama-0_ml_trainer-"+id+".log")}
	w := h.Read(uint32(pid), []string{"RANK=0"}, "ray::Trainer.step")
	if w.Container != id || w.Pod != "llama-0" || w.Namespace != "ml" || w.PodContainer != "trainer" || w.Rank != "0" || w.Actor != "Trainer" {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		t.Errorf("got %+v of\n%s", w, text)
	}
}

func BenchmarkOf(b *testing.B) {
	var environ []string
	for i := range 2000 {
		environ = append(environ, fmt.Sprintf("MY_SERVICE_%d_PORT_8080_TCP=tcp://10.0.0.1:8080", i))
	}
	environ = append(environ, "RANK=3", "LOCAL_RANK=3", "WORLD_SIZE=8", "HOSTNAME=box")
	dir := b.TempDir()
	for i := range 250 {
		if err := os.Mkdir(fmt.Sprintf("%s/ml_pod-%d_%d", dir, i, i), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	text := []byte(strings.Repeat("4:memory:"+slices+"/cri-containerd-"+id+".scope\n", 13))
	b.Run("pods=250/variables=2000", func(b *testing.B) {
		h := &Host{pods: newPods()}
		h.pods.pods.dirs = []string{dir}
		for b.Loop() {
			_ = cgroupOf(uint32(os.Getpid()))
			Parse(text, environ, "", h.pods.pod) // the uid is unknown: the worst case
		}
	})
	b.Run("hostile", func(b *testing.B) {
		text := []byte(strings.Repeat("4:memory:/"+strings.Repeat("kubepods-pod/:/job_/lxc/", 170)+"\n", 16))
		environ := make([]string, 1<<19)
		for i := range environ {
			environ[i] = "="
		}
		for b.Loop() {
			Parse(text, environ, "", unknown)
		}
	})
}
