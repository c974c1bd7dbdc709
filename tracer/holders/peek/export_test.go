// SPDX-License-Identifier: Apache-2.0

package peek

import "os"

// ReadFile is readFile, for tests of other packages.
func (p *Process) ReadFile(b []byte, r Region, address uint64) error {
	return p.readFile(b, r, address)
}

// OpenByName is openByName, for tests of other packages.
func (p *Process) OpenByName(r Region) (*os.File, error) { return p.openByName(r) }

// Has reports whether the page of an address is copied.
func (c *Copy) Has(address uint64) bool { return c.has(address &^ (PageSize - 1)) }
