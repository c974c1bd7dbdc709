// SPDX-License-Identifier: Apache-2.0

// Package kvuse asks an inference server how much of its KV cache is used. It asks over HTTP, on
// loopback, and only ports on which the server's process listens. The answers are hostile.
package kvuse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/tracer/procfs"
)

const (
	patience   = time.Second // for one port, until its last byte
	maxPorts   = 16
	maxBody    = 8 << 20 // bytes; of vLLM's with its histograms: some 100 KiB
	maxHeader  = 64 << 10
	maxLine    = 64 << 10
	maxSeries  = 1024 // of one metric: a server has one for each of its engines
	maxParents = 3
)

// metrics are the gauges that show which part of a KV cache is used, from 0 to 1. Of one server's,
// the first counts.
var metrics = []struct{ name, engine string }{
	{"vllm:kv_cache_usage_perc", "vLLM"},
	{"vllm:gpu_cache_usage_perc", "vLLM"}, // until 0.10
	{"sglang:token_usage", "SGLang"},
	{"llamacpp:kv_cache_usage_ratio", "llama.cpp"},
}

// Ports are connections to where a process and its parents listen.
type Ports struct {
	pid  uint32
	list []port
	more bool // there are more than maxPorts
}

type port struct {
	by   uint32 // the process that listens
	at   netip.AddrPort
	conn net.Conn
}

// Connect connects to the ports that a process listens on, and those of its parents of the same
// user: workers of vLLM and SGLang are children of the process that serves. Ask must follow. An
// error has the reason why nothing is known.
func Connect(ctx context.Context, pid uint32) (*Ports, error) {
	p := &Ports{pid: pid}
	inspected := pid
	for range 1 + maxParents {
		own, err := inNamespace(inspected)
		if err != nil {
			p.close()
			return nil, err
		}
		if !own {
			p.close()
			return nil, fmt.Errorf("process %d is in another network namespace (run vramprof there: nsenter --net --target %d)", inspected, inspected)
		}
		for _, at := range listening(inspected) {
			if p.more = len(p.list) == maxPorts; p.more {
				return p, nil
			}
			p.list = append(p.list, port{inspected, at, dial(ctx, at)})
		}
		parent := procfs.Parent(inspected)
		if parent <= 1 || procfs.User(parent) != procfs.User(pid) {
			break
		}
		inspected = parent
	}
	if len(p.list) == 0 {
		return nil, fmt.Errorf("process %d listens on no port of this machine's loopback, nor do its parents", pid)
	}
	return p, nil
}

// dial connects to an address, and returns nil if nobody answers.
func dial(ctx context.Context, at netip.AddrPort) net.Conn {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil
	}
	return conn
}

func (p *Ports) close() {
	for i := range p.list {
		if p.list[i].conn != nil {
			p.list[i].conn.Close()
		}
	}
}

// Ask asks each port, and closes all. An error has the reason why nothing is known.
func (p *Ports) Ask(ctx context.Context) (*purpose.Use, error) {
	defer p.close()
	for _, x := range p.list {
		if use := ask(ctx, x.at, x.conn); use != nil {
			use.By, use.Port = x.by, x.at.Port()
			return use, nil
		}
	}
	if p.more {
		return nil, fmt.Errorf("none of %d ports of process %d and its parents has a metric of a KV cache", maxPorts, p.pid)
	}
	return nil, fmt.Errorf("/metrics of process %d has no metric of a KV cache (SGLang needs --enable-metrics)", p.pid)
}

var errRedirect = errors.New("it redirects")

// ask returns what the server at the end of a connection reports, nil if that is nothing.
func ask(ctx context.Context, at netip.AddrPort, conn net.Conn) *purpose.Use {
	if conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := http.Client{
		Transport: &http.Transport{
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
			DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/metrics", nil)
	if err != nil {
		return nil
	}
	response, err := client.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil
	}
	return parse(io.LimitReader(response.Body, maxBody))
}

// parse reads metrics in Prometheus' text format. Several series, of engines of one server, count
// as their mean. An answer that ends early, or that is too long, counts for nothing.
func parse(r io.Reader) *purpose.Use {
	sums, counts := make([]float64, len(metrics)), make([]int, len(metrics))
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4096), maxLine)
	for lines.Scan() {
		i, value, ok := gauge(lines.Text())
		if ok && counts[i] < maxSeries {
			sums[i] += value
			counts[i]++
		}
	}
	if lines.Err() != nil {
		return nil
	}
	for i, n := range counts {
		if n > 0 {
			return &purpose.Use{Engine: metrics[i].engine, Metric: metrics[i].name, Used: sums[i] / float64(n), Series: n}
		}
	}
	return nil
}

// gauge reads a line such as `vllm:kv_cache_usage_perc{engine="0"} 0.25`.
func gauge(line string) (metric int, value float64, ok bool) {
	for i := range metrics {
		rest, found := strings.CutPrefix(line, metrics[i].name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if end := strings.LastIndexByte(rest, '}'); rest[0] == '{' {
			rest = rest[end+1:]
		}
		fields := strings.Fields(rest) // a timestamp may follow
		if len(fields) == 0 {
			return 0, 0, false
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		return i, value, err == nil && !math.IsNaN(value) && value >= 0 && value <= 1
	}
	return 0, 0, false
}
