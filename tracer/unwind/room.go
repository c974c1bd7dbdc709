// SPDX-License-Identifier: Apache-2.0

package unwind

import "fmt"

// maxPythons is how many layouts may have a Python.
const maxPythons = 4096

// Limits of the tree. A process of PyTorch with all of NVIDIA's libraries has 310 mappings and some 2,000 prefixes.
const (
	maxPrefixes          = 1 << 20
	maxPrefixesOfProcess = maxPrefixes / 16
	maxPrefixesOfUser    = maxPrefixes / 2
	// Of the last part small layouts only may have some: newcomers'.
	reservedPrefixes    = maxPrefixes / 4
	smallLayoutPrefixes = 4096
)

// room counts the prefixes in the tree.
type room struct {
	most, ofUser, reserved, small int // see maxPrefixes, and what follows it

	total int
	by    map[uint32]int // user
}

func newRoom() room {
	return room{most: maxPrefixes, ofUser: maxPrefixesOfUser, reserved: reservedPrefixes, small: smallLayoutPrefixes, by: map[uint32]int{}}
}

// take says whether a user's process may have n prefixes more.
func (r *room) take(user uint32, n int) error {
	switch {
	case r.total+n > r.most:
		return fmt.Errorf("mappings of all processes take %d entries of %d, and its own would take %d", r.total, r.most, n)
	case r.by[user]+n > r.ofUser:
		return fmt.Errorf("mappings of processes of user %d take %d entries of the %d that one user may have, and its own would take %d", user, r.by[user], r.ofUser, n)
	case n > r.small && r.total+n > r.most-r.reserved:
		return fmt.Errorf("its mappings would take %d entries, and the last %d are for processes that take at most %d", n, r.most-r.total, r.small)
	}
	r.total += n
	r.by[user] += n
	return nil
}

func (r *room) give(user uint32, n int) {
	r.total -= n
	if r.by[user] -= n; r.by[user] <= 0 {
		delete(r.by, user)
	}
}
