// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// play applies a script such as "alloc t=1 addr=a0 size=100 stack=1".
func play(t *testing.T, script string) *Ledger {
	t.Helper()
	l := New(Options{})
	ops := map[string]Op{"alloc": Alloc, "allocfailed": AllocFailed, "free": Free, "freefailed": FreeFailed, "exec": Exec, "exit": Exit}
	for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
		words := strings.Fields(line)
		arg := map[string]string{"pid": "7", "dev": "-1", "kind": "1", "api": "cudaMalloc"}
		var rest []string
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok && !strings.HasPrefix(k, "GPU") {
				arg[k] = v
			} else {
				rest = append(rest, w)
			}
		}
		num := func(key string, base int) uint64 {
			if arg[key] == "" {
				return 0
			}
			n, err := strconv.ParseInt(arg[key], base, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return uint64(n)
		}
		e := Event{
			Op: ops[words[0]], Kind: Kind(num("kind", 10)), PID: uint32(num("pid", 10)), TID: uint32(num("tid", 10)),
			Device: int32(num("dev", 10)), Result: int32(num("result", 10)), Time: num("t", 10) * 1e9,
			Address: num("addr", 16), Size: num("size", 10), Stack: num("stack", 10), API: arg["api"],
		}
		if e.TID == 0 {
			e.TID = e.PID
		}
		switch words[0] {
		case "name":
			l.SetProcess(Process{PID: e.PID, Comm: arg["comm"], Begin: e.Time})
		case "devices":
			l.SetProcess(Process{PID: e.PID})
			l.SetDevices(e.PID, rest)
		case "maxlive":
			l.options.MaxLive, _ = strconv.Atoi(rest[0])
		case "usage":
			l.SetProcess(Process{PID: e.PID})
			var u []Usage
			for _, w := range rest {
				uuid, bytes, _ := strings.Cut(w, "=")
				n, _ := strconv.ParseUint(bytes, 10, 64)
				u = append(u, Usage{PID: e.PID, UUID: uuid, Bytes: n})
			}
			l.SetUsage(e.Time, u)
		default:
			l.Apply(&e)
		}
	}
	return l
}

func describe(s *Snapshot) string {
	var b strings.Builder
	device := func(d int32) string {
		if d == UnknownDevice {
			return "?"
		}
		return fmt.Sprintf("cuda:%d", d)
	}
	kind := []string{"none", "device", "managed", "pinned"}
	for i, p := range s.Processes {
		fmt.Fprintf(&b, "process %d", p.PID)
		if p.Comm != "" {
			fmt.Fprintf(&b, " %s", p.Comm)
		}
		if p.End != 0 {
			fmt.Fprintf(&b, " ended %d", p.End/1e9)
		}
		b.WriteByte('\n')
		for _, t := range p.Totals {
			fmt.Fprintf(&b, "total %s %s live %d/%d alloc %d/%d peak %d@%d\n", device(t.Device), kind[t.Kind],
				t.LiveObjects, t.LiveBytes, t.AllocObjects, t.AllocBytes, t.PeakBytes, t.PeakTime/1e9)
		}
		for _, x := range s.Sites {
			if x.Process != i {
				continue
			}
			api := ""
			if x.API != "cudaMalloc" {
				api = " " + x.API
			}
			fmt.Fprintf(&b, "site %d %s %s live %d/%d alloc %d/%d oldest %d%s\n", x.Stack, device(x.Device), kind[x.Kind],
				x.LiveObjects, x.LiveBytes, x.AllocObjects, x.AllocBytes, x.Oldest/1e9, api)
		}
		for _, f := range s.Failures {
			if f.Process == i {
				fmt.Fprintf(&b, "failure %d %s result %d count %d bytes %d last %d@%d\n",
					f.Stack, device(f.Device), f.Result, f.Count, f.Bytes, f.LastBytes, f.LastTime/1e9)
			}
		}
		for _, x := range s.Balances {
			if x.Process == i {
				fmt.Fprintf(&b, "balance %s %s usage %d peak %d baseline %d live %d gap %d\n",
					x.UUID, device(x.Device), x.Usage, x.Peak, x.Baseline, x.Live, x.Gap)
			}
		}
	}
	var stats string
	for _, c := range []struct {
		name string
		n    uint64
	}{{"unmatched", s.Stats.UnmatchedFrees}, {"reused", s.Stats.Reused}, {"evicted", s.Stats.Evicted}} {
		if c.n != 0 {
			stats += fmt.Sprintf(" %s %d", c.name, c.n)
		}
	}
	if stats != "" {
		b.WriteString("stats" + stats + "\n")
	}
	return b.String()
}
