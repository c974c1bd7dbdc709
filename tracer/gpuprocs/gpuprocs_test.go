// SPDX-License-Identifier: Apache-2.0

package gpuprocs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// node makes a device file that no driver is behind.
func node(t *testing.T, name string, major, minor uint32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Skip(err)
	}
	return path
}

// keep starts testdata/keep.c, and returns the process that keeps the file.
func keep(t *testing.T, node, mode string) (started, keeper uint32) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "keep")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", program, "testdata/keep.c").CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	cmd := exec.Command(program, node, mode)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, err2 := strconv.ParseUint(strings.TrimSpace(line), 10, 32)
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		if err2 == nil {
			_ = unix.Kill(int(pid), unix.SIGKILL)
		}
		_ = cmd.Wait()
	})
	if err != nil || err2 != nil {
		t.Fatalf("%s: %q, %v", mode, line, err)
	}
	return uint32(cmd.Process.Pid), uint32(pid)
}

// find scans this machine for a process.
func find(t *testing.T, pid uint32) *Process {
	t.Helper()
	list, err := Scan()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(list, func(a, b Process) int { return int(a.PID) - int(b.PID) }) {
		t.Error("the list is not in the order of pids")
	}
	for i := range list {
		if list[i].PID == pid {
			return &list[i]
		}
	}
	t.Fatalf("process %d is not among the %d that keep a GPU", pid, len(list))
	return nil
}

func TestAProcessThatHasADeviceFileOpenIsFound(t *testing.T) {
	_, pid := keep(t, node(t, "nvidia3", nvidiaMajor, 3), "plain")
	p := find(t, pid)
	if !slices.Equal(p.GPUs, []uint32{3}) || p.Control || p.UVM || p.Threads != 0 || p.Orphan != nil || p.Role != Client || filepath.Base(p.Exe) != "keep" {
		t.Errorf("found %+v", *p)
	}
	if p := find(t, func() uint32 {
		_, pid := keep(t, node(t, "nvidiactl", nvidiaMajor, nvidiaControl), "plain")
		return pid
	}()); !p.Control || len(p.GPUs) != 0 {
		t.Errorf("with nvidiactl alone: %+v", *p)
	}
}

// The name of a file is the process's to choose.
func TestAFileThatIsOnlyNamedLikeADeviceIsNone(t *testing.T) {
	_, pid := keep(t, node(t, "nvidia0", 1, 3), "plain")
	list, err := Scan()
	if err != nil || slices.ContainsFunc(list, func(p Process) bool { return p.PID == pid }) {
		t.Errorf("a process with another device is listed (%v)", err)
	}
}

// The leader's own descriptors and arguments are gone with it.
func TestADefunctLeaderIsFoundByItsLivingThreads(t *testing.T) {
	path := node(t, "nvidia1", nvidiaMajor, 1)
	started, pid := keep(t, path, "zombie")
	p := find(t, pid)
	if p.State != 'Z' || p.Threads != 1 || !slices.Equal(p.GPUs, []uint32{1}) || started != pid {
		t.Errorf("found %+v", *p)
	}
	if !strings.Contains(p.Command, path+" zombie") {
		t.Errorf("the command of its threads is %q", p.Command)
	}
}

func TestAnOrphanIsFoundWithItsFormerGroup(t *testing.T) {
	path := node(t, "nvidia0", nvidiaMajor, 0)
	for mode, want := range map[string]Orphan{
		"orphan": {Clue: ByGroup, Lives: true, Name: "keep"},
		"lost":   {Clue: ByGroup},
		"worker": {Clue: ByGroup, Worker: TorchWorker, Forked: true},
	} {
		started, pid := keep(t, path, mode)
		p := find(t, pid)
		if p.Orphan == nil {
			st, _ := (&scanner{root: "/proc"}).stat(pid, pid)
			t.Errorf("%s: no orphan: %+v, %+v", mode, *p, st)
			continue
		}
		got := *p.Orphan
		if mode == "orphan" && got.Former != started || mode != "orphan" && (got.Former == 0 || got.Former == started || got.Former == pid) {
			t.Errorf("%s: the former parent is %d, of the started %d and the keeper %d", mode, got.Former, started, pid)
		}
		got.Former = 0
		if got != want {
			t.Errorf("%s: got %+v, want %+v", mode, got, want)
		}
	}
}

// CUDA exports memory as a descriptor of nvidiactl. A child that inherits one is no importer.
func TestADescriptorThatWasPassedIsFoundWithWhoHasItToo(t *testing.T) {
	path := node(t, "nvidiactl", nvidiaMajor, nvidiaControl)
	started, pid := keep(t, path, "passed")
	for _, c := range [][2]uint32{{pid, started}, {started, pid}} {
		p := find(t, c[0])
		if want := []Passed{{Others: []uint32{c[1]}}}; !reflect.DeepEqual(p.Passed, want) {
			if _, ok := compareFiles(pid, 0, pid, 0); !ok {
				t.Skip("the kernel does not compare descriptors")
			}
			t.Errorf("process %d: %+v, want %+v", c[0], p.Passed, want)
		}
	}
	_, alone := keep(t, path, "ended") // the last one has the memory alone: nothing tells that from a descriptor of its own
	if p := find(t, alone); !p.Control || p.Passed != nil {
		t.Errorf("%+v", *p)
	}
	list := []Process{{PID: 1, controls: []int{5, 7}}, {PID: 2, controls: []int{5, 9}}}
	defer func(f func(uint32, int, uint32, int) (int, bool)) { compareFiles = f }(compareFiles)
	compareFiles = func(_ uint32, fd1 int, _ uint32, fd2 int) (int, bool) { return fd1 - fd2, true }
	if findPassed(list); list[0].Passed != nil || list[1].Passed != nil {
		t.Errorf("an inherited descriptor counts as passed: %+v", list)
	}
	compareFiles = func(pid uint32, fd1 int, _ uint32, fd2 int) (int, bool) { return 0, pid != 1 } // process 1 has ended
	if findPassed(list); list[0].Passed != nil {
		t.Error("without kcmp, descriptors count as the same")
	}
}

// One open file that many have is named with a few of them, and a process with many descriptors
// takes no other one's place. Each descriptor is compared with few others.
func TestManyDescriptorsAreComparedInBoundedTime(t *testing.T) {
	defer func(f func(uint32, int, uint32, int) (int, bool)) { compareFiles = f }(compareFiles)
	compared := 0
	compareFiles = func(pid1 uint32, fd1 int, pid2 uint32, fd2 int) (int, bool) {
		compared++
		open := func(pid uint32, fd int) int { // of process 1, each is another; of all the others, one is shared
			if pid == 1 && fd > 0 {
				return fd + 1
			}
			return 0
		}
		return open(pid1, fd1) - open(pid2, fd2), true
	}
	const many = 2 * maxPassed
	list := []Process{{PID: 1}}
	for fd := range many {
		list[0].controls = append(list[0].controls, fd)
	}
	for i := range uint32(1000) {
		list = append(list, Process{PID: 2 + i, controls: []int{int(10 + i)}})
	}
	findPassed(list)
	for i, p := range list {
		if len(p.Passed) != 1 || len(p.Passed[0].Others) != MaxOthers || slices.Contains(p.Passed[0].Others, p.PID) || !slices.IsSorted(p.Passed[0].Others) {
			t.Fatalf("process %d of %d has %d passed descriptors: %v", i, len(list), len(p.Passed), p.Passed)
		}
	}
	if most := 32 * maxPassed; compared > most { // 12 for each to sort them
		t.Errorf("%d comparisons, want at most %d", compared, most)
	}
}

// fixture makes a /proc of one process.
func fixture(t *testing.T, files map[string]string, links map[string]string) *scanner {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range links {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newScanner(root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// No machine of ours exports dma-bufs: the files are as Linux 6.12 writes them.
func TestDmaBufsAreFoundOpenAndMapped(t *testing.T) {
	const info = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t77\nsize:\t2097152\ncount:\t3\nexp_name:\tnvidia\nname:\tcache\n"
	s := fixture(t, map[string]string{
		"devices":     "Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  7 loop\n",
		"40/stat":     "40 (a) b) S 1 40 40 0 -1",
		"40/status":   "Name:\ta\nNSpid:\t40\t7\n",
		"40/fdinfo/5": info, "40/fdinfo/6": info, "40/fdinfo/7": "pos:\t0\n",
		"40/maps": "7f0000000000-7f0000200000 rw-s 00000000 00:0a 77 /dmabuf:cache\n7f0000400000-7f0000500000 rw-s 00000000 00:0a 78 /dmabuf:\n" +
			"7f0000600000-7f0000700000 rw-s 00000000 00:0a 78 /dmabuf:\n7f0000800000-7f0000900000 rw-s 00000000 fd:01 79 /dmabuf:spoofed\n",
	}, map[string]string{"40/fd/5": "/dmabuf:cache", "40/fd/6": "/dmabuf:cache", "40/fd/7": "/dmabuf:spoofed", "40/exe": "/usr/bin/a"})
	list, err := s.scan()
	if err != nil || len(list) != 1 {
		t.Fatalf("found %+v, %v", list, err)
	}
	want := []Buffer{{Inode: 77, Bytes: 2 << 20, Exporter: "nvidia"}, {Inode: 78, Bytes: 2 << 20, Mapped: true}}
	if !slices.Equal(list[0].Buffers, want) || list[0].InnerID != 7 || s.uvm != 511 {
		t.Errorf("found %+v, want %+v; uvm %d", list[0], want, s.uvm)
	}
}

func TestMPSIsFoundByItsPrograms(t *testing.T) {
	server := node(t, "nvidia0", nvidiaMajor, 0)
	s := fixture(t, map[string]string{
		"devices": "", "50/stat": "50 (nvidia-cuda-mps) S 1 50 50 0", "51/stat": "51 (nvidia-cuda-mps) S 50 50 50 0",
		"52/stat": "52 (nvidia-cuda-mps) S 50 50 50 0",
	}, map[string]string{
		"50/exe": "/usr/bin/nvidia-cuda-mps-control", "51/exe": "/usr/bin/nvidia-cuda-mps-server", "51/fd/3": server,
		"52/exe": "/tmp/nvidia-cuda-mps-server",
	})
	list, err := s.scan()
	if err != nil || len(list) != 2 || list[0].Role != MPSControl || list[1].Role != MPSServer || list[1].PID != 51 {
		t.Errorf("found %+v, %v", list, err)
	}
}

func TestAFormerParentIsKnownByTheBestClue(t *testing.T) {
	path := node(t, "nvidia0", nvidiaMajor, 0)
	files := map[string]string{
		"devices": "", "1/stat": "1 (init) S 0 1 1 0", "60/stat": "60 (python3) S 1 33 30 0", "60/comm": "python3\n",
		"60/cmdline": "python3\x00-c\x00from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)\x00--multiprocessing-fork\x00",
		"60/environ": "A=1\x00SLURM_TASK_PID=31\x00", "31/stat": "31 (train) S 30 31 30 0", "31/comm": "train\n",
	}
	s := fixture(t, files, map[string]string{"60/fd/3": path})
	p := s.look(60, stat{'S', 1, 33, 30, false})
	if want := (&Orphan{Worker: SpawnedWorker, Clue: ByEnvironment, Former: 31, Lives: true, Name: "train"}); !reflect.DeepEqual(p.Orphan, want) {
		t.Errorf("found %+v, want %+v", p.Orphan, want)
	}
	files["60/environ"], files["60/status"] = "SLURM_TASK_PID=31\x00", "NSpid:\t60\t9\n" // a pid of its own namespace
	s = fixture(t, files, map[string]string{"60/fd/3": path})
	p = s.look(60, stat{'S', 1, 33, 30, false})
	if want := (&Orphan{Worker: SpawnedWorker, Clue: ByGroup, Former: 33}); !reflect.DeepEqual(p.Orphan, want) {
		t.Errorf("in a container: found %+v, want %+v", p.Orphan, want)
	}
	for _, not := range []stat{{'S', 1, 60, 60, false}, {'S', 31, 31, 30, false}, {'S', 99, 33, 30, false}} { // a daemon, a child, a parent unseen
		if p := s.look(60, not); p.Orphan != nil {
			t.Errorf("%+v is an orphan: %+v", not, p.Orphan)
		}
	}
}

// A container's processes may all be of one session, whose leader is outside of it: then it is 0.
func TestAnOrphanOfOneSessionIsKnownByItsGroup(t *testing.T) {
	for _, c := range []struct {
		name          string
		terminal      string // of init: 34816 is pts/0
		group, leader string
		comm          string
		orphan        bool
	}{
		{"its group's leader lives", "0", "33", "33 (train) S 1 33 0 0", "python3", true},
		{"its group's leader has ended", "0", "33", "", "python3", true},
		{"started by init", "0", "0", "", "python3", false},
		{"in a pipeline of a shell", "34816", "33", "", "python3", false},
		{"a worker by its name, of a shell's job", "34816", "33", "", "pt_data_worker", true},
		{"a worker by its name, of a job that lives", "34816", "33", "33 (train) S 1 33 0 34816", "pt_data_worker", false},
	} {
		files := map[string]string{
			"devices": "", "1/stat": "1 (init) S 0 0 0 " + c.terminal, "60/stat": "60 (x) S 1 " + c.group + " 0 " + c.terminal, "60/comm": c.comm + "\n",
		}
		if c.leader != "" {
			files["33/stat"] = c.leader
		}
		s := fixture(t, files, map[string]string{"60/fd/3": node(t, "nvidia0", nvidiaMajor, 0)})
		st, _ := s.stat(60, 60)
		if p := s.look(60, st); (p.Orphan != nil) != c.orphan {
			t.Errorf("%s: orphan %+v", c.name, p.Orphan)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("40 (a) b) S 1 40 40 0", "size:\t1\nexp_name:\tx\n", "NSpid:\t40\t7\n", "195 nvidia\n")
	f.Fuzz(func(t *testing.T, stat, info, status, devices string) {
		parseStat(stat)
		parseBuffer(info)
		parseInner(status, 1)
		majorOf(devices, "nvidia-uvm")
		workerOf(stat, strings.Fields(info))
	})
}

// BenchmarkScan looks at all processes of this machine.
func BenchmarkScan(b *testing.B) {
	for b.Loop() {
		if _, err := Scan(); err != nil {
			b.Fatal(err)
		}
	}
}
