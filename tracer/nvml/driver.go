// SPDX-License-Identifier: Apache-2.0

// Package nvml asks the NVIDIA driver's management library which GPUs there are
// and how much memory each process uses on them.
//
// Built without cgo it only says ErrUnavailable.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// ErrUnavailable: there is no driver, or not one that can be asked.
var ErrUnavailable = errors.New("NVML is not available")

// ErrBusy: an earlier call has not come back from the driver yet.
var ErrBusy = errors.New("NVML does not answer")

var errClosed = errors.New("NVML connection is closed")

// library is the part of NVML that is called on the driver's goroutine.
type library interface {
	gpus() ([]ledger.GPU, map[string]partition, error)
	usage() (list []ledger.Usage, unavailable int, err error)
	shutdown() error
}

// Driver is a connection to the NVIDIA driver. Its methods may be called from
// several goroutines; the driver is asked one thing at a time. A call that the
// driver does not answer in time leaves the Driver busy: until the answer
// comes, all others return ErrBusy at once.
type Driver struct {
	version     string
	library     library
	calls       chan func()
	closed      chan struct{}
	closeOnce   sync.Once
	hanging     atomic.Int32
	unavailable atomic.Uint64
	partitions  atomic.Pointer[map[string]partition] // by UUID, of the last GPUs
	order       atomic.Pointer[[]string]             // of UUIDs: CUDA's own, where it is not NVML's
}

// Open loads the library at path, or libnvidia-ml.so.1 if path is empty. The
// error wraps ErrUnavailable if that is not possible, or if ctx ends first. A
// program can use only one such library in its life.
func Open(ctx context.Context, path string) (*Driver, error) {
	d := &Driver{calls: make(chan func()), closed: make(chan struct{})}
	go d.serve()
	type opened struct {
		library library
		version string
	}
	o, err := ask(ctx, d, func() (opened, error) {
		l, version, err := open(path)
		return opened{l, version}, err
	})
	if err != nil {
		d.stop()
		if !errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	d.library, d.version = o.library, o.version
	return d, nil
}

// Version is that of the driver, "550.163.01"; "" if it does not tell.
func (d *Driver) Version() string { return d.version }

// GPUs lists the devices in NVML's order, which is that of the PCI bus. Behind a
// GPU in MIG mode come its instances, with its UUID as Parent; their memory is
// part of its own, and compute instances of one GPU instance share theirs. Devices
// that do not answer are left out and named in the error, so that both
// results can be useful at once; those that we may not see are left out
// silently. Sizes are bytes; 0 if the device does not tell.
func (d *Driver) GPUs(ctx context.Context) ([]ledger.GPU, error) {
	return ask(ctx, d, func() ([]ledger.GPU, error) {
		gpus, partitions, err := d.library.gpus()
		if len(gpus) > 0 {
			d.partitions.Store(&partitions)
		}
		return gpus, err
	})
}

// Ordinals is the package's Ordinals with what the last GPUs found out about MIG.
func (d *Driver) Ordinals(environ []string, gpus []ledger.GPU) []string {
	var partitions map[string]partition
	if p := d.partitions.Load(); p != nil {
		partitions = *p
	}
	var order []string
	if o := d.order.Load(); o != nil {
		order = *o
	}
	return ordinals(environ, gpus, partitions, order)
}

// Usage lists what each process uses on each GPU, once per pid and GPU, in
// bytes. What is on a MIG instance has the instance's UUID, and is not part of its GPU's.
// The pids are those of the host, whatever the caller's pid namespace.
// As with GPUs, both results can be useful at once.
func (d *Driver) Usage(ctx context.Context) ([]ledger.Usage, error) {
	type result struct {
		list        []ledger.Usage
		unavailable int
	}
	r, err := ask(ctx, d, func() (r result, err error) {
		r.list, r.unavailable, err = d.library.usage()
		return r, err
	})
	d.unavailable.Add(uint64(r.unavailable))
	return r.list, err
}

// Unavailable counts the entries of all Usage calls for which the driver
// did not say how much memory the process uses; they are left out of Usage.
func (d *Driver) Unavailable() uint64 { return d.unavailable.Load() }

// Close ends the connection. The Driver cannot be used afterwards.
func (d *Driver) Close(ctx context.Context) error {
	_, err := ask(ctx, d, func() (struct{}, error) { return struct{}{}, d.library.shutdown() })
	if err == nil {
		d.stop()
	}
	return err
}

func (d *Driver) stop() { d.closeOnce.Do(func() { close(d.closed) }) }

func (d *Driver) serve() {
	for {
		select {
		case call := <-d.calls:
			call()
		case <-d.closed:
			return
		}
	}
}

// ask runs call on the driver's goroutine and waits for it as long as ctx
// allows.
func ask[T any](ctx context.Context, d *Driver, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if d.hanging.Load() > 0 {
		return none, ErrBusy
	}
	answers := make(chan answer, 1)
	run := func() {
		defer func() {
			if r := recover(); r != nil { // lists longer than their space
				answers <- answer{err: fmt.Errorf("answer of the driver: %v", r)}
			}
		}()
		value, err := call()
		answers <- answer{value, err}
	}
	select {
	case d.calls <- run:
	case <-d.closed:
		return none, errClosed
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
	}
	d.hanging.Add(1)
	go func() {
		<-answers
		d.hanging.Add(-1)
	}()
	return none, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
}

// InitError is a library that was found and cannot reach its driver.
type InitError struct {
	Err    error
	Advice string // what to do about it
}

// Error returns the reason, and what to do in parentheses.
func (e *InitError) Error() string { return fmt.Sprintf("%v (%s)", e.Err, e.Advice) }

// Unwrap returns the reason.
func (e *InitError) Unwrap() error { return e.Err }

// Remedy returns what to do.
func (e *InitError) Remedy() string { return e.Advice }
