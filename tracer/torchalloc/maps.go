// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
)

// blockMaps are the maps of live blocks that exist so far. They take memory from their creation, so
// none exists before a PyTorch is seen, and the largest one only if it is needed.
type blockMaps struct {
	prepared chan struct{} // closed when the first exist

	mu   sync.Mutex // guards what follows, and is held while a map is created
	near *ebpf.Map  // nil: not yet
	far  []*ebpf.Map
}

// growInterval is how often Grow looks: the first map has space for the tensors that come
// meanwhile.
const growInterval = 50 * time.Millisecond

// list returns the maps; near may be nil.
func (b *blockMaps) list() (near *ebpf.Map, far []*ebpf.Map) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.near, slices.Clone(b.far)
}

// Prepare creates the first maps of live blocks, unless they exist. Probes on PyTorch come after
// it.
func (a *Allocators) Prepare() (err error) {
	b := &a.maps
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.near == nil {
		if b.near, err = put(a.Maps["near_blocks"], 0, a.BlockMaps.Near); err != nil {
			return err
		}
	}
	if len(b.far) == 0 {
		if err = a.addFar(); err == nil {
			close(b.prepared)
		}
	}
	return err
}

// Grow creates further maps of live blocks when a quarter of those that exist is in use, until all
// exist or ctx ends. It calls warn once if the kernel has no memory for one, and tries again.
func (a *Allocators) Grow(ctx context.Context, warn func(text string)) {
	select {
	case <-a.maps.prepared:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(growInterval)
	defer tick.Stop()
	for warned := false; ; {
		all, err := a.grow()
		if all {
			return
		}
		if err != nil && !warned {
			warned = true
			warn(fmt.Sprintf("some live tensors may not be followed: %v", err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (a *Allocators) grow() (all bool, err error) {
	a.maps.mu.Lock()
	defer a.maps.mu.Unlock()
	var entries uint64
	for _, m := range a.maps.far {
		entries += uint64(m.MaxEntries())
	}
	if len(a.maps.far) < len(a.BlockMaps.Far) && a.Used() >= entries/4 {
		err = a.addFar()
	}
	return len(a.maps.far) == len(a.BlockMaps.Far), err
}

// addFar creates the next far map; a.maps.mu is held.
func (a *Allocators) addFar() error {
	b := &a.maps
	m, err := put(a.Maps["blocks"], uint32(len(b.far)), a.BlockMaps.Far[len(b.far)])
	if err == nil {
		b.far = append(b.far, m)
	}
	return err
}

// put creates a map in a map of maps.
func put(outer *ebpf.Map, at uint32, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create a map of %d live tensors: %w", spec.MaxEntries, err)
	}
	if err := outer.Put(at, m); err != nil {
		m.Close()
		return nil, fmt.Errorf("add a map of %d live tensors: %w", spec.MaxEntries, err)
	}
	return m, nil
}

// Close closes the maps; a may be nil. No other method may be called after it.
func (a *Allocators) Close() {
	if a == nil {
		return
	}
	near, far := a.maps.list()
	if near != nil {
		near.Close()
	}
	for _, m := range far {
		m.Close()
	}
}
