// SPDX-License-Identifier: Apache-2.0

// Floor attaches nearly empty programs where vramprof attaches its own. The cost of a call is then
// the lowest possible for a tracer with uprobes.
//
//	floor [-stack] LIBRARY...
//
// probes entry and return of cudaMalloc, cudaFree, cuMemAlloc_v2 and cuMemFree_v2, and the entry of
// the function to which PyTorch's allocator reports, in the given libraries, for all processes. It
// prints "floor: ready" on stderr and ends on SIGINT or SIGTERM.
//
// With -stack, it is the cheapest useful tracer instead: the outermost allocation walks the frame
// pointers; allocations and frees send 64 bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

func main() {
	stack := flag.Bool("stack", false, "walk the frame pointers and send events")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: floor [-stack] LIBRARY...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args(), *stack); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, libraries []string, stack bool) error {
	p := prober{multi: features.HaveBPFLinkUprobeMulti() == nil}
	events, err := p.load(stack)
	defer p.close()
	if err != nil {
		return err
	}
	for _, path := range libraries {
		if err := p.attach(path); err != nil {
			return fmt.Errorf("probe %s: %w", path, err)
		}
	}
	fmt.Fprintln(os.Stderr, "floor: ready")
	n, err := count(ctx, events)
	if stack {
		fmt.Fprintf(os.Stderr, "floor: %d events\n", n)
	}
	return err
}

// count reads events from the ring until ctx ends, as often as vramprof does.
func count(ctx context.Context, events *ebpf.Map) (n int, err error) {
	reader, err := ringbuf.NewReader(events)
	if err != nil {
		return 0, fmt.Errorf("open the ring: %w", err)
	}
	defer reader.Close()
	var record ringbuf.Record
	for {
		done := ctx.Err() != nil
		reader.SetDeadline(time.Now().Add(10 * time.Millisecond))
		for err = nil; err == nil; n++ {
			err = reader.ReadInto(&record)
		}
		n--
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if done {
			return n, nil
		}
	}
}
