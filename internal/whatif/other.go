// SPDX-License-Identifier: Apache-2.0

package whatif

// other is what a process has on a GPU besides what its PyTorch has reserved: its context, and
// memory of other libraries. NVML's readings take time in which PyTorch goes on, so those between
// which it did not reserve or return memory count, if there are any.
type other struct {
	reserved  uint64
	changed   bool // since the last reading
	steady    uint64
	moving    uint64 // in the readings at which memory moved
	hasSteady bool
	hasMoving bool
}

func (o *other) reserves(bytes uint64) {
	o.changed = o.changed || bytes != o.reserved
	o.reserved = bytes
}

// used takes a reading of NVML, in bytes.
func (o *other) used(bytes uint64, rough bool) {
	rest := bytes - min(o.reserved, bytes)
	if rough || o.changed {
		o.moving, o.hasMoving = max(o.moving, rest), true
	} else {
		o.steady, o.hasSteady = max(o.steady, rest), true
	}
	o.changed = false
}

// most returns the largest value, in bytes, and whether there is one.
func (o *other) most() (uint64, bool) {
	if o.hasSteady {
		return o.steady, true
	}
	return o.moving, o.hasMoving
}
