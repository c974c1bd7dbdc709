// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/internal/simdriver"
	reportjson "github.com/vramprof/vramprof/report/json"
)

var (
	communicatorBegins = regexp.MustCompile(` comm (0x[0-9a-f]+) rank .* - Init START`)
	deviceAllocation   = regexp.MustCompile(` Cuda Alloc Size (\d+) pointer (0x[0-9a-f]+)`)
)

// logged sums what NCCL's log says that each communicator has allocated and not freed when all are
// made, in the order in which they begin: an address that comes again was freed.
func logged(t *testing.T, path string) (sums []int64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type allocation struct {
		communicator int
		bytes        int64
	}
	at := map[string]allocation{}
	count := 0
	for line := range strings.Lines(string(text)) {
		if communicatorBegins.MatchString(line) {
			count++
		}
		if m := deviceAllocation.FindStringSubmatch(line); m != nil && count > 0 {
			bytes, _ := strconv.ParseInt(m[1], 10, 64)
			at[m[2]] = allocation{count - 1, bytes}
		}
	}
	sums = make([]int64, count)
	for _, x := range at {
		sums[x.communicator] += x.bytes
	}
	return sums
}

// byFunction sums the parts of NCCL by the function that the line is in.
func byFunction(b *reportjson.ExplainedPart) map[string]int64 {
	by := map[string]int64{}
	for _, p := range rowNamed(b, "NCCL").Parts {
		function, _, _ := strings.Cut(p.Line, " ")
		by[function] += int64(p.Bytes)
	}
	return by
}

// TestNCCLsMemoryIsDividedByCommunicator: two ranks make three communicators of different sizes at
// three lines. The memory of each, most of which NCCL's own threads allocate, has its line and the
// bytes of NCCL's log. Connections that an exchange opens later are the communicator's; what a
// graph of collectives takes is theirs. When the second is destroyed, its memory goes, and that of
// the others stays.
// Meanwhile ps shows that the ranks have imported each other's buffers.
func TestNCCLsMemoryIsDividedByCommunicator(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	sim := simdriver.Build(t, "--math", "535")
	root := realtorch.Prepare(t) // its Python has the libc that NCCL needs
	folder := t.TempDir()
	env := append(sim.Env(t, "a100", 2), "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,ALLOC", "NCCL_DEBUG_FILE="+filepath.Join(folder, "log.%p"), "NCCL_SOCKET_IFNAME=lo")
	script := filepath.Join(filepath.Dir(realtorch.Script("x")), "../names/ranks.py")
	target := startCommand(t, root.Command(env, script, "0", folder))
	other := startCommand(t, root.Command(env, script, "1", folder))
	target.expect("loaded")
	server := startServe(t, env)
	path := filepath.Join(folder, "run.vram")
	s := start(t, env, "record", "-o", path, "-p", fmt.Sprint(target.pid())).ready()
	fmt.Fprintln(target.stdin)
	target.expect("ready")
	s.after(1500 * time.Millisecond) // a reading of the driver
	logFile := filepath.Join(folder, fmt.Sprintf("log.%d", target.pid()))
	log := logged(t, logFile)
	checkImports(t, env, server, target.pid(), other.pid())
	fmt.Fprintln(target.stdin)
	target.expect("exchanged")
	connections := sum(logged(t, logFile)) - sum(log)
	fmt.Fprintln(target.stdin)
	target.expect("captured")
	log = append(log, sum(logged(t, logFile))-sum(log)-connections)
	s.after(1500 * time.Millisecond)
	fmt.Fprintln(target.stdin)
	target.expect("destroyed")
	s.after(1500 * time.Millisecond)
	s.stop()

	end := explained(t, env, path)
	all, left := byFunction(explained(t, env, "--at", "peak", path)), byFunction(end)
	t.Logf("at the peak %v, at the end %v, NCCL's log %v and connections %d", all, left, log, connections)
	if len(log) != 4 || log[0] < 8<<20 || log[1] < 8<<20 || log[0] == log[1] || log[3] <= 0 || connections < 8<<20 {
		t.Fatalf("NCCL's log has %v and connections %d: three communicators of several MiB, of different sizes, were made, and used", log, connections)
	}
	log[0] += connections // of world, by the thread that it made
	names := []string{"world", "tensor_parallel", "pipeline", "capture"}
	for i, name := range names {
		if all[name] != log[i] {
			t.Errorf("%s: %d bytes, NCCL's log has %d", name, all[name], log[i])
		}
	}
	if len(all) != len(names) {
		t.Errorf("%v: want no other lines", all)
	}
	if left["tensor_parallel"] != 0 || left["world"] != all["world"] || left["pipeline"] != all["pipeline"] || left["capture"] != all["capture"] {
		t.Errorf("after tensor_parallel was destroyed: %v", left)
	}
	checkPart(t, end, "NCCL", "collectives", "capture (ranks.py:")
}

func sum(list []int64) (n int64) {
	for _, x := range list {
		n += x
	}
	return n
}

// checkImports fails unless ps shows, with the books of serve, that two ranks have imported each
// other's buffers.
func checkImports(t *testing.T, env []string, server *server, ranks ...int) {
	t.Helper()
	cmd := exec.Command(binary(t), "ps", "--json", "--connect="+filepath.Join(server.runDir, "vramprof.sock"))
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	var r reportjson.ProcessesReport
	if err != nil || json.Unmarshal(out, &r) != nil {
		t.Fatalf("ps: %v\n%s", err, out)
	}
	for i, rank := range ranks {
		k := slices.IndexFunc(r.Processes, func(x reportjson.ListedReport) bool {
			return int(x.PID) == rank && x.Presence != nil && x.Presence.Imports != nil
		})
		if k < 0 {
			t.Errorf("ps lists no imports of rank %d:\n%s", i, out)
			continue
		}
		m := r.Processes[k].Presence.Imports
		if m.Bytes == 0 || len(m.Owners) != 1 || int(m.Owners[0].PID) != ranks[1-i] || m.Owners[0].Ended || m.More {
			t.Errorf("rank %d has imported %+v, want memory of process %d", i, *m, ranks[1-i])
		}
		t.Logf("rank %d has imported %+v", i, *m)
	}
}
