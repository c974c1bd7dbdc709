// SPDX-License-Identifier: Apache-2.0

// Package probeprice measures how long a probe delays a program on this machine: it calls a
// function of this process in a loop, without the probe and with it.
package probeprice

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/vramprof/vramprof/internal/procmaps"
)

func address() uintptr
func call(n uint64)

const (
	// calls is how many calls are measured, in some 20 ms. Their median counts: other programs take
	// the processor in some.
	calls = 101

	// evicted is how much memory is written before each call. A program does other work between two
	// calls too, so that the kernel's code and data are not in the processor's caches.
	evicted, line = 2 << 20, 64
)

// least is less than any trap takes: a probe that adds less was not hit.
const least = 100 * time.Nanosecond

var (
	errNotMapped = errors.New("the function to probe is in no mapped file")
	errNotHit    = errors.New("the probe was not hit")
)

// Measure returns how much longer a call takes with a probe at its entry. attach attaches the probe
// to the file program at an offset in bytes, and returns what detaches it, which Measure calls in a
// goroutine of its own: the kernel waits then.
func Measure(attach func(program *os.File, offset uint64) (detach func(), err error)) (time.Duration, error) {
	price, err := measure(attach)
	if err != nil {
		return 0, fmt.Errorf("measure the price of a probe: %w", err)
	}
	return price, nil
}

func measure(attach func(program *os.File, offset uint64) (detach func(), err error)) (time.Duration, error) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	defer program.Close()
	offset, err := offsetOf(uint64(address()))
	if err != nil {
		return 0, err
	}
	bare := median()
	detach, err := attach(program, offset)
	if err != nil {
		return 0, err
	}
	defer func() { go detach() }()
	price := median() - bare
	if price < least {
		return 0, errNotHit
	}
	return price, nil
}

// median returns how long a call takes.
func median() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var list [calls]time.Duration
	memory := make([]byte, evicted)
	for i := range list {
		for k := 0; k < len(memory); k += line {
			memory[k]++
		}
		begin := time.Now()
		call(1)
		list[i] = time.Since(begin)
	}
	slices.Sort(list[:])
	return list[calls/2]
}

// offsetOf returns where in its file the code at an address of this process is.
func offsetOf(address uint64) (offset uint64, err error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	found := false
	err = procmaps.Each(maps, func(m procmaps.Mapping) bool {
		found = m.Start <= address && address < m.End && m.Inode != 0
		if found {
			offset = address - m.Start + m.Offset
		}
		return !found
	})
	if err == nil && !found {
		err = errNotMapped
	}
	return offset, err
}
