// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
)

// ForgetContexts deletes from the kernel half's maps the contexts and captured streams of processes
// for which known is false. Any goroutine but the one that reads the rings may call it: it iterates
// over both maps.
func ForgetContexts(contexts, captures *ebpf.Map, known func(pid uint32) bool) {
	forget[bpf.StreamKey, uint64](captures, func(key *bpf.StreamKey) bool { return known(uint32(key.Pid)) })
	forget[bpf.ContextKey, uint32](contexts, func(key *bpf.ContextKey) bool { return known(uint32(key.Pid)) })
}

func forget[K, V any](m *ebpf.Map, keep func(*K) bool) {
	var gone []K
	var key K
	var value V
	for i := m.Iterate(); i.Next(&key, &value); {
		if !keep(&key) {
			gone = append(gone, key)
		}
	}
	for i := range gone {
		_ = m.Delete(&gone[i])
	}
}
