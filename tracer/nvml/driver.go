// SPDX-License-Identifier: Apache-2.0

// Package nvml asks the NVIDIA driver's management library (NVML) which GPUs exist and how much
// memory each process uses on them.
//
// A build without cgo always returns ErrUnavailable.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// ErrUnavailable means that there is no driver, or that NVML cannot be used.
var ErrUnavailable = errors.New("NVML is not available")

// ErrBusy means that a call to the driver has not returned yet.
var ErrBusy error = busy{}

type busy struct{}

func (busy) Error() string { return "NVML does not answer" }

// Remedy returns what to do.
func (busy) Remedy() string {
	return "the driver hangs, and nvidia-smi with it: dmesg | grep NVRM shows why"
}

// unanswered is the ErrBusy of a call that was given up.
type unanswered struct{ cause error }

func (unanswered) Error() string     { return ErrBusy.Error() }
func (e unanswered) Unwrap() []error { return []error{ErrBusy, e.cause} }

var errClosed = errors.New("NVML connection is closed")

// library is the part of NVML that runs on the driver's goroutine. Between stop and the next start,
// which gpus and usage call, it keeps nothing of the driver open.
type library interface {
	gpus() ([]ledger.GPU, map[string]partition, error)
	usage() (usageResult, error)
	stop() error
}

// usageResult is what the lists of processes have.
type usageResult struct {
	list        []ledger.Usage // of those with a pid
	unavailable int            // of these, those without a figure, which are not in list
	nameless    []ledger.Usage // sums of those with pid 0
	mps         []uint32       // pids of those that use CUDA through MPS, in order
}

// Driver is a connection to the NVIDIA driver. Its methods are safe for concurrent use; the driver
// gets one call at a time. If a call times out, the Driver stays busy: all methods return ErrBusy
// at once until that call returns.
type Driver struct {
	version     string
	library     library
	calls       chan func()
	closed      chan struct{}
	closeOnce   sync.Once
	hanging     atomic.Int32
	unavailable atomic.Uint64
	last        atomic.Pointer[usageResult]          // of Usage
	partitions  atomic.Pointer[map[string]partition] // by UUID, as of the last call of GPUs
	order       atomic.Pointer[[]string]             // UUIDs in CUDA's order, where it differs from NVML's
}

// Open loads the library at path, or libnvidia-ml.so.1 if path is empty. The error wraps
// ErrUnavailable if loading fails or ctx ends first. A process can load only one such library.
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

// Version returns the driver's version, such as "550.163.01", or "" if unknown.
func (d *Driver) Version() string { return d.version }

// GPUs lists the devices in NVML's order, which is the order of the PCI bus. A GPU in MIG mode is
// followed by its instances, with its UUID as Parent. An instance's memory is part of its GPU's
// memory; compute instances of one GPU instance share memory. GPUs skips devices that do not answer
// and names them in the error, so both results can be useful at once. It silently skips devices
// that this process may not see. Sizes are bytes, or 0 if unknown.
func (d *Driver) GPUs(ctx context.Context) ([]ledger.GPU, error) {
	return ask(ctx, d, func() ([]ledger.GPU, error) {
		gpus, partitions, err := d.library.gpus()
		if len(gpus) > 0 {
			d.partitions.Store(&partitions)
		}
		return gpus, err
	})
}

// ResolveOrdinals calls the package's ResolveOrdinals with the MIG data from the last call of GPUs.
func (d *Driver) ResolveOrdinals(environ []string, gpus []ledger.GPU) []string {
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

// Usage lists the memory of each process on each GPU in bytes, one entry per pid and GPU. Memory on
// a MIG instance has the instance's UUID and is not part of the GPU's entry. Pids are the host's,
// whatever the caller's pid namespace. As with GPUs, both results can be useful at once.
func (d *Driver) Usage(ctx context.Context) ([]ledger.Usage, error) {
	r, err := ask(ctx, d, func() (usageResult, error) { return d.library.usage() })
	d.unavailable.Add(uint64(r.unavailable))
	d.last.Store(&r)
	return r.list, err
}

// Nameless returns what the last call of Usage found without a pid, a sum for each GPU or instance:
// memory of processes that NVML does not name, such as those of another pid namespace.
func (d *Driver) Nameless() []ledger.Usage {
	if r := d.last.Load(); r != nil {
		return r.nameless
	}
	return nil
}

// MPS returns which processes of the last call of Usage use CUDA through MPS, in order.
func (d *Driver) MPS() []uint32 {
	if r := d.last.Load(); r != nil {
		return r.mps
	}
	return nil
}

// Unavailable counts the entries, over all Usage calls, for which the driver did not report the
// process's memory. Usage omits them.
func (d *Driver) Unavailable() uint64 { return d.unavailable.Load() }

// Close ends the connection. The Driver cannot be used afterwards.
func (d *Driver) Close(ctx context.Context) error {
	err := d.Suspend(ctx)
	if err == nil {
		d.stop()
	}
	return err
}

// Suspend closes all that is open of the driver, and unloads its library: they may be replaced
// then. The next call of GPUs or Usage opens them again, in the version that is installed by then.
func (d *Driver) Suspend(ctx context.Context) error {
	_, err := ask(ctx, d, func() (struct{}, error) { return struct{}{}, d.library.stop() })
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

// ask runs call on the driver's goroutine and waits for it until ctx ends.
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
			if r := recover(); r != nil { // a list longer than its buffer
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
		return none, unanswered{ctx.Err()}
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
	return none, unanswered{ctx.Err()}
}

// LoadError means that the library cannot be loaded.
type LoadError struct{ Err error }

// Error returns the reason, followed by the remedy in parentheses.
func (e *LoadError) Error() string {
	return e.Err.Error() + " (install the NVIDIA driver to reconcile results with its figures)"
}

// Unwrap returns the reason.
func (e *LoadError) Unwrap() error { return e.Err }

// Reason returns the reason without the remedy.
func (e *LoadError) Reason() string { return e.Err.Error() }

// InitError means that the library was loaded but cannot reach its driver.
type InitError struct {
	Err    error
	Advice string // the remedy
}

// Error returns the reason, followed by the remedy in parentheses.
func (e *InitError) Error() string { return fmt.Sprintf("%v (%s)", e.Err, e.Advice) }

// Unwrap returns the reason.
func (e *InitError) Unwrap() error { return e.Err }

// Reason returns the reason without the remedy.
func (e *InitError) Reason() string { return e.Err.Error() }

// Remedy returns the remedy.
func (e *InitError) Remedy() string { return e.Advice }
