// SPDX-License-Identifier: Apache-2.0

package kvuse

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// What servers answer, shortened.
const (
	vllm = `# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="a } b"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5 1700000000000
vllm:gpu_cache_usage_perc{engine="0"} 0.9
`
	sglang = "sglang:token_usage_max 1\nsglang:token_usage{model_name=\"m\"} 0.28\nsglang:num_used_tokens 123859\n"
)

func TestMetricsOfEachEngineAreRead(t *testing.T) {
	for text, want := range map[string]string{
		vllm:                                     "vLLM vllm:kv_cache_usage_perc 0.375 2",
		sglang:                                   "SGLang sglang:token_usage 0.28 1",
		"vllm:gpu_cache_usage_perc 1\n":          "vLLM vllm:gpu_cache_usage_perc 1 1",
		"llamacpp:kv_cache_usage_ratio 0.0625\n": "llama.cpp llamacpp:kv_cache_usage_ratio 0.0625 1",
		"":                                       "none",
		"vllm:kv_cache_usage_perc\n":             "none",
		"vllm:kv_cache_usage_perc{\n":            "none",
		"vllm:kv_cache_usage_perc NaN\n":         "none",
		"vllm:kv_cache_usage_perc 1e300\n":       "none",
		"vllm:kv_cache_usage_perc -1\n":          "none",
		"sglang:token_usage 0.5\n" + strings.Repeat("x", maxLine+1):     "none", // cut off
		strings.Repeat("sglang:token_usage 1\n", 2*maxSeries):           fmt.Sprintf("SGLang sglang:token_usage 1 %d", maxSeries),
		"\x1b[31mvllm:kv_cache_usage_perc 0.5\nsglang:token_usage 0x\n": "none",
	} {
		got := "none"
		if u := parse(strings.NewReader(text)); u != nil {
			got = fmt.Sprint(u.Engine, " ", u.Metric, " ", u.Used, " ", u.Series)
		}
		if got != want {
			t.Errorf("%.60q: %s, want %s", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(vllm)
	f.Add(sglang)
	f.Fuzz(func(t *testing.T, text string) {
		if u := parse(strings.NewReader(text)); u != nil && !(u.Used >= 0 && u.Used <= 1) {
			t.Errorf("%v", u.Used)
		}
	})
}

func serve(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// A server that answers with what it should not, or without end, costs at most the patience for one
// port.
func TestHostileServersAreLeftSoon(t *testing.T) {
	good := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, vllm) })
	asked := false
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { asked = true; fmt.Fprint(w, vllm) })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, c := range map[string]struct {
		at   netip.AddrPort
		want bool
	}{
		"good": {good, true},
		"redirect": {serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+other.String()+"/metrics", http.StatusFound)
		}), false},
		"an error": {serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); fmt.Fprint(w, vllm) }), false},
		"without end": {serve(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, vllm)
			}
		}), true}, // its first 8 MiB, or nothing if they take longer than the patience
		"slow": {serve(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, vllm)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}), false},
		"a long header": {serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 4*maxHeader))
			fmt.Fprint(w, vllm)
		}), false},
		"silent": {netip.MustParseAddrPort(silent.Addr().String()), false},
	} {
		begin := time.Now()
		use := ask(t.Context(), c.at, dial(t.Context(), c.at))
		if took := time.Since(begin); took > patience+5*time.Second {
			t.Errorf("%s: %v", name, took)
		}
		if name != "without end" && (use != nil) != c.want {
			t.Errorf("%s: %+v", name, use)
		}
	}
	if asked {
		t.Error("a redirect was followed")
	}
}

func TestOnlyListenersOnLoopbackCount(t *testing.T) {
	const rest = " 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0000000000000000 100 0 0 10 0\n"
	for line, want := range map[string]string{
		"0: 0100007F:1F90 00000000:0000 0A" + rest:                                                   "127.0.0.1:8080 12345",
		"0: 00000000:1F90 00000000:0000 0A" + rest:                                                   "127.0.0.1:8080 12345",
		"0: 0100000A:1F90 00000000:0000 0A" + rest:                                                   "none", // 10.0.0.1
		"0: 0100007F:1F90 0100007F:1234 01" + rest:                                                   "none", // connected
		"0: 0100007F:0000 00000000:0000 0A" + rest:                                                   "none",
		"0: 00000000000000000000000000000000:7530 00000000000000000000000000000000:0000 0A" + rest:   "[::1]:30000 12345",
		"0: 00000000000000000000000001000000:7530 00000000000000000000000000000000:0000 0A" + rest:   "[::1]:30000 12345",
		"0: 0000000000000000FFFF00000100007F:7530 00000000000000000000000000000000:0000 0A" + rest:   "127.0.0.1:30000 12345",
		"0: 000080FE00000000000000000100007F:7530 00000000000000000000000000000000:0000 0A" + rest:   "none", // fe80::…
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout": "none",
		"0: 0100007F 0A": "none",
	} {
		got := "none"
		if at, inode, ok := listener(line); ok {
			got = fmt.Sprint(at, " ", inode)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// TestAServerOfAParentIsAskedAndOthersAreNot: this process serves. Of it and a child the metrics
// are read, not of a process that is no descendant.
func TestAServerOfAParentIsAskedAndOthersAreNot(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		fmt.Fprint(w, sglang)
	})
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill(); child.Wait() })
	self := uint32(os.Getpid())
	if got := procfs.Parent(uint32(child.Process.Pid)); got != self {
		t.Fatalf("the parent is %d", got)
	}
	for _, pid := range []uint32{self, uint32(child.Process.Pid)} {
		use, err := read(t.Context(), pid)
		if err != nil || use.Used != 0.28 || use.By != self || use.Port != at.Port() {
			t.Errorf("%+v, %v", use, err)
		}
	}
	if list := listening(procfs.Parent(self)); len(list) > 0 {
		for _, l := range list {
			if l == at {
				t.Error("a port of this process counts as its parent's")
			}
		}
	}
	if use, err := read(t.Context(), 1<<22+1); err == nil {
		t.Errorf("%+v", use)
	}
}

func read(ctx context.Context, pid uint32) (*purpose.Use, error) {
	p, err := Connect(ctx, pid)
	if err != nil {
		return nil, err
	}
	return p.Ask(ctx)
}
