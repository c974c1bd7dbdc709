// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// maxPythons limits the layouts with a Python, of which a user has a share by quota.Quota.
const maxPythons = 4096

// Limits of the tree. A process of PyTorch with all of NVIDIA's libraries has 310 mappings and some
// 2,000 prefixes.
const (
	maxPrefixes          = 1 << 20
	maxPrefixesOfProcess = maxPrefixes / 16
	maxPrefixesOfUser    = maxPrefixes / 2
	// The last part is reserved for small layouts, so that new processes find space.
	reservedPrefixes    = maxPrefixes / 4
	smallLayoutPrefixes = 4096
)

// room counts the prefixes in the tree, and the layouts with a Python.
type room struct {
	most, ofUser, reserved, small int // the limits above

	total     int
	by        map[uint32]int // by user
	pythons   quota.Quota
	pythonsBy map[uint32]int // by user
}

func newRoom() room {
	return room{most: maxPrefixes, ofUser: maxPrefixesOfUser, reserved: reservedPrefixes, small: smallLayoutPrefixes, by: map[uint32]int{},
		pythons: quota.New(maxPythons), pythonsBy: map[uint32]int{}}
}

// take counts n prefixes of a user's process, and its Python if it has one, or returns the limit
// that they would exceed.
func (r *room) take(user uint32, n int, python bool) error {
	switch {
	case python && !r.pythons.Room(0, r.pythonsBy[user]):
		return fmt.Errorf("of %d places for processes with a Python, user %d's have %d and all %d", maxPythons, user, r.pythonsBy[user], r.pythons.Used())
	case r.total+n > r.most:
		return fmt.Errorf("the mappings of all processes need %d of %d entries, and its mappings need %d more", r.total, r.most, n)
	case r.by[user]+n > r.ofUser:
		return fmt.Errorf("the mappings of user %d's processes need %d of the %d entries that one user may have, and its mappings need %d more", user, r.by[user], r.ofUser, n)
	case n > r.small && r.total+n > r.most-r.reserved:
		return fmt.Errorf("its mappings need %d entries, and the last %d are reserved for processes that need at most %d", n, r.most-r.total, r.small)
	}
	r.total += n
	r.by[user] += n
	if python {
		r.pythons.Take()
		r.pythonsBy[user]++
	}
	return nil
}

func (r *room) give(user uint32, n int, python bool) {
	r.total -= n
	if python {
		r.pythons.Give()
		if r.pythonsBy[user]--; r.pythonsBy[user] == 0 {
			delete(r.pythonsBy, user)
		}
	}
	if r.by[user] -= n; r.by[user] <= 0 {
		delete(r.by, user)
	}
}
