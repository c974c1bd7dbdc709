// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// The benchmark compares each tool's output with the truth: a parsing error would count as the
// tool's error.
func TestAnswersAreReadAsTheToolsMeanThem(t *testing.T) {
	for _, test := range []struct {
		name          string
		read          func(string) answer
		text          string
		allocs, live  uint64
		lost          uint64
		stacks        int
		whole, python float64
	}{
		{name: "pprof", read: func(text string) answer { return parsePprof(text, "driver") }, allocs: 751, live: 4096, lost: 1200, stacks: 2, whole: 0.5, python: 0.5,
			text: `Comment: doubt: 1,200 events were lost because buffers were full: counts and bytes can be too high or too low
Samples:
alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt] host_objects/count host_space/bytes
        750    3072000          0          0          0          0: 1 2 3 
                api:[cudaMalloc] comm:[python3] plane:[driver]
                bytes:[4096 bytes] pid:[12542]
          1       4096          1       4096          0          0: 1 4 
                api:[cudaMalloc] plane:[driver]
          7          7          7       9999          0          0: 1 3 
                plane:[tensor]
Locations
     1: 0x2ee0 M=2 cudaMalloc :0:0 s=0
     2: 0x0 M=5 run_thread /x/bench.py:74:0 s=71()
     3: 0x27249 M=6 __libc_start_call_main libc_start_call_main.h:58:0 s=23
     4: 0x1 M=2 inlined /x/y.c:1:0 s=0()
             outer /x/y.c:2:0 s=0()
Mappings
1: 0x0/0x0/0x0 /usr/bin/python3.11  [FN]
`},
		{name: "bpftrace", read: parseBpftrace, allocs: 3010, live: 4096, stacks: 2, whole: 0.5,
			text: "Attaching 5 probes...\nready\n\n@allocs: 3010\n\n@frees: 3010\n@live[\n    cudaMalloc+0\n    site_right+53\n    main+1283\n]: 0\n@live[\n    cudaMalloc+0\n    0x7ffaeb2fc6d9\n]: 4096\n"},
		{name: "memleak: the last complete list counts", read: parseMemleak, allocs: 5, live: 5120, stacks: 2, whole: 0.5,
			text: "[21:31:07] Top 10 stacks with outstanding allocations:\n\t99 bytes in 9 allocations from stack\n\t\t0x0001\tmain+0x1 [x]\n" +
				"[21:31:08] Top 10 stacks with outstanding allocations:\n\t4096 bytes in 4 allocations from stack\n\t\t0x0001\tsite+0x1 [x]\n\t\t0x0002\tmain+0x2d3 [x]\n" +
				"\t1024 bytes in 1 allocations from stack\n\t\t0x0003\t[unknown]\n" +
				"[21:31:09] Top 10 stacks with outstanding allocations:\n\t4096 bytes in 4 allocations from stack\n"},
	} {
		a := test.read(test.text)
		whole, python := a.shares()
		if a.allocs != test.allocs || a.live != test.live || a.lost != test.lost || len(a.stacks) != test.stacks {
			t.Errorf("%s: %d allocations, %d bytes, %d lost, %d stacks", test.name, a.allocs, a.live, a.lost, len(a.stacks))
		}
		if whole != test.whole || python != test.python {
			t.Errorf("%s: shares %v, %v", test.name, whole, python)
		}
	}
}
