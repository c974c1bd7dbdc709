// SPDX-License-Identifier: Apache-2.0

package unwind

import "time"

// cache keeps what was used since the turn before the last one. It has no lock.
type cache[K comparable, V any] struct {
	young, old map[K]V
	turned     time.Time
}

// turnInterval is how long what is not used stays at least.
const turnInterval = 10 * time.Minute

// get returns what is kept, which then stays for two more turns.
func (c *cache[K, V]) get(key K) (V, bool) {
	if value, ok := c.young[key]; ok {
		return value, true
	}
	value, ok := c.old[key]
	if ok {
		c.put(key, value)
	}
	return value, ok
}

func (c *cache[K, V]) put(key K, value V) {
	if c.young == nil {
		c.young = map[K]V{}
	}
	c.young[key] = value
}

// turn drops what was not used since the last turn.
func (c *cache[K, V]) turn() { c.young, c.old, c.turned = nil, c.young, time.Now() }

// age turns if the last turn was long ago, and reports whether it did.
func (c *cache[K, V]) age(now time.Time) (turned bool) {
	if now.Sub(c.turned) < turnInterval {
		return false
	}
	c.turn()
	return true
}
