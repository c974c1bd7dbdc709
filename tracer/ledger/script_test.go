// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// play applies a script such as "alloc t=1 addr=a0 size=100 stack=1".
func play(t *testing.T, script string) *Ledger {
	t.Helper()
	l := New(Options{unrounded: true})
	ops := map[string]Op{
		"alloc": Alloc, "allocfailed": AllocFailed, "free": Free, "freefailed": FreeFailed, "exec": Exec, "exit": Exit,
		"alias": Alias, "map": Map, "unmap": Unmap, "retain": Retain, "export": Export,
		"ctxretain": ContextRetain, "ctxrelease": ContextRelease, "ctxreset": ContextReset, "ctxdestroy": ContextDestroy,
		"poolcreate": PoolCreate, "pooldestroy": PoolDestroy, "pooltrim": PoolTrim, "poolthreshold": PoolThreshold, "poolselect": PoolSelect, "poolown": PoolOwn, "allocator": Allocator, "told": Totals, "addressfree": AddressFree, "learn": Learn,
	}
	for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
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
			if arg[key] == "unknown" {
				return UnknownSize
			}
			if i := slices.Index(kindNames, arg[key]); key == "kind" && i >= 0 {
				return uint64(i)
			}
			if i := slices.Index(spaceNames, arg[key]); key == "space" && i >= 0 {
				return uint64(i)
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
			Space: Space(num("space", 10)), Halvings: uint8(num("halvings", 10)), Context: num("ctx", 16), Handle: num("handle", 16),
		}
		if told := strings.Split(arg["told"], "/"); len(told) > 1 { // allocated/reserved[/live]
			e.Told = ToldAllocated
			e.Allocated, _ = strconv.ParseUint(told[0], 10, 64)
			e.Reserved, _ = strconv.ParseUint(told[1], 10, 64)
			if len(told) > 2 {
				e.Told |= ToldLive
				e.Live, _ = strconv.ParseUint(told[2], 10, 64)
			}
		}
		if e.TID == 0 {
			e.TID = e.PID
		}
		switch words[0] {
		case "name":
			l.Tell(Process{PID: e.PID, Comm: arg["comm"], Begin: e.Time})
		case "devices":
			l.Tell(Process{PID: e.PID})
			l.Tell(Devices{PID: e.PID, UUIDs: rest})
		case "begin":
			l.Tell(Begin{Time: e.Time})
		case "maxlive":
			n, _ := strconv.Atoi(rest[0])
			l.quotas[tableLive], l.quotas[tableMappings] = quota.New(n*quota.ProcessPart), quota.New(n*quota.ProcessPart)
		case "gpus": // UUID/model
			var list []GPU
			for i, w := range rest {
				uuid, model, _ := strings.Cut(w, "/")
				list = append(list, GPU{Index: i, UUID: uuid, Name: model})
			}
			l.Tell(GPUs(list))
		case "usage":
			l.Tell(Process{PID: e.PID})
			var u []Usage
			for _, w := range rest {
				uuid, bytes, _ := strings.Cut(w, "=")
				bytes, rough := strings.CutPrefix(bytes, "~")
				n, _ := strconv.ParseUint(bytes, 10, 64)
				u = append(u, Usage{PID: e.PID, UUID: uuid, Bytes: n, Rough: rough})
			}
			l.Tell(UsageReading{Time: e.Time, Usages: u})
		case "open":
			l.Tell(UsageOpened{Time: e.Time})
		case "totals": // size:allocs/bytes-frees/bytes
			x := TensorTotals{PID: e.PID, Device: e.Device, Reported: num("reported", 10) * 1e9, Allocated: num("allocated", 10), Reserved: num("reserved", 10), Unbooked: num("unbooked", 10), Classes: make([]ClassTotals, SizeClasses)}
			for _, w := range rest {
				var size uint64
				var c ClassTotals
				if _, err := fmt.Sscanf(w, "%d:%d/%d-%d/%d", &size, &c.Allocs, &c.AllocBytes, &c.Frees, &c.FreeBytes); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				x.Classes[SizeClass(size)] = c
			}
			l.Tell(TensorReading{Time: e.Time, Totals: []TensorTotals{x}})
		case "blocks": // address+size@device
			var list []Block
			for _, w := range rest {
				b := Block{}
				if at, device, ok := strings.Cut(w, "@"); ok {
					w = at
					n, _ := strconv.Atoi(device)
					b.Device = int32(n)
				}
				if _, err := fmt.Sscanf(w, "%x+%d", &b.Address, &b.Size); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				list = append(list, b)
			}
			l.Tell(BlockList{PID: e.PID, Blocks: list})
		case "segments":
			l.MarkSegments(func(stack uint64) bool { return slices.Contains(rest, fmt.Sprint(stack)) })
		case "sampling": // of all classes
			p, err := strconv.ParseFloat(rest[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			l.Tell(Sampling(slices.Repeat([]float64{p}, SizeClasses)))
		default:
			if e.Op == 0 {
				t.Fatalf("%s: no such event", line)
			}
			l.Apply(&e)
		}
	}
	return l
}

var (
	kindNames  = []string{"none", "device", "managed", "pinned", "registered", "async", "vmm", "array", "imported", "graph", "tensor"}
	spaceNames = []string{"addresses", "registers", "arrays", "mipmaps", "externals", "physical", "blocks"}
	causeNames = []string{"none", "destroyed", "released", "reset"}
)

// describeTensors leaves out values of 0, and the parts if there are no tensors.
func describeTensors(b *strings.Builder, s *Snapshot) {
	figures := func(list ...any) {
		for i := 0; i < len(list); i += 2 {
			if text := fmt.Sprint(list[i+1]); text != "0" {
				fmt.Fprintf(b, " %s %s", list[i], text)
			}
		}
		b.WriteByte('\n')
	}
	for _, x := range s.Tensors {
		device := fmt.Sprint("cuda:", x.Device)
		if x.Device == CPUDevice {
			device = "cpu"
		}
		fmt.Fprintf(b, "tensors %d %s live %d/%d alloc %d/%d sampled %d", s.Processes[x.Process].PID, device, x.LiveObjects, x.LiveBytes, x.AllocObjects, x.AllocBytes, x.Sampled)
		figures("halvings", uint64(x.Halvings), "allocated", x.Allocated, "reserved", x.Reserved, "peak", x.Peak, "at", x.PeakTime/1e9, "error", x.Error, "older", x.Older, "oldercached", x.OlderCached,
			"segments", x.Segments, "cached", x.Cached, "run", x.LargestFree, "asleep", x.Asleep, "olderasleep", x.OlderAsleep, "oldermoved", x.OlderMoved, "foreign", x.Foreign)
	}
	if len(s.Tensors) == 0 {
		return
	}
	for i, x := range s.Parts() {
		fmt.Fprintf(b, "part %s of %d:", x.UUID, s.Balances[i].Usage)
		figures("tensors", x.Tensors, "cached", x.Cached, "driver", x.Driver, "rounding", x.Rounding, "older", x.OlderAllocated, "oldercached", x.OlderCached, "foreign", x.Foreign, "unplaced", x.Unplaced, "unexplained", x.Unexplained, "beyond", x.Beyond())
	}
}

func describe(s *Snapshot) string {
	var b strings.Builder
	device := func(d int32) string {
		switch d {
		case UnknownDevice:
			return "?"
		case CPUDevice:
			return "cpu"
		}
		return fmt.Sprintf("cuda:%d", d)
	}
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
			fmt.Fprintf(&b, "total %s %s live %d/%d alloc %d/%d peak %d@%d\n", device(t.Device), kindNames[t.Kind],
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
			if x.Segment {
				api += fmt.Sprint(" segment with ", x.Tensors)
			}
			if x.Asleep > 0 {
				api += fmt.Sprint(" asleep ", x.Asleep)
			}
			fmt.Fprintf(&b, "site %d %s %s live %d/%d alloc %d/%d oldest %d%s\n", x.Stack, device(x.Device), kindNames[x.Kind],
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
				fmt.Fprintf(&b, "balance %s %s usage %d peak %d baseline %d live %d gap %d",
					x.UUID, device(x.Device), x.Usage, x.Peak, x.Baseline, x.Live, x.Gap)
				if x.Doubt != 0 {
					fmt.Fprintf(&b, " since %d doubt %d", x.Since, x.Doubt)
				}
				if x.Rounding != 0 {
					fmt.Fprintf(&b, " rounding %d", x.Rounding)
				}
				if x.Idle != 0 {
					fmt.Fprintf(&b, " idle %d", x.Idle)
				}
				b.WriteByte('\n')
			}
		}
		for _, x := range s.Releases {
			if x.Process == i {
				fmt.Fprintf(&b, "release %s %d/%d@%d\n", causeNames[x.Cause], x.Objects, x.Bytes, x.Time/1e9)
			}
		}
		for _, x := range s.Pools {
			if x.Process == i {
				fmt.Fprintf(&b, "pool %x %s used %d/%d reserve %d", x.Handle, device(x.Device), x.Objects, x.Used, x.Reserve)
				if x.Threshold != 0 {
					fmt.Fprintf(&b, " threshold %d", x.Threshold)
				}
				if x.Destroyed {
					b.WriteString(" destroyed")
				}
				b.WriteByte('\n')
			}
		}
	}
	describeTensors(&b, s)
	var stats string
	for _, c := range []struct {
		name string
		n    uint64
	}{{"unmatched", s.Stats.UnmatchedFrees}, {"reused", s.Stats.Reused}, {"evicted", s.Stats.Evicted}, {"unknown", s.Stats.UnknownSizes}} {
		if c.n != 0 {
			stats += fmt.Sprintf(" %s %d", c.name, c.n)
		}
	}
	if stats != "" {
		b.WriteString("stats" + stats + "\n")
	}
	for _, w := range s.Warnings {
		b.WriteString("warning " + w + "\n")
	}
	return b.String()
}
