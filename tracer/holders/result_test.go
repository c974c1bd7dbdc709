// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"fmt"
	"strings"
	"testing"
)

func TestLinesSumTheStoragesOfAHolder(t *testing.T) {
	r := walkImage(t, syntheticJob(), Options{})
	var bytes, storages uint64
	var b strings.Builder
	for _, l := range r.Lines() {
		bytes += l.Bytes
		storages += l.Storages
		fmt.Fprintf(&b, "%d %d %s %s, %d %s with %d, found %v\n", l.Bytes>>20, l.Storages, l.Device, l.Holder, l.Containers, l.Container, l.Entries, l.Found)
	}
	if _, all := r.Held(); bytes != all || storages != uint64(len(r.Storages)) {
		t.Errorf("lines have %d bytes in %d storages, the walk %d in %d", bytes, storages, all, len(r.Storages))
	}
	golden(t, "lines", b.String())
}
