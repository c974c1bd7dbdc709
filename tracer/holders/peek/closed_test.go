// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"errors"
	"strings"
	"testing"
)

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	p := &Process{files: map[fileKey]mappedFile{{1, 2}: {err: errors.New("open /usr/lib/libpython3.13.so: permission denied")}, {1, 3}: {}}}
	if got := p.ClosedFiles(); len(got) != 1 || !strings.Contains(got[0], "libpython3.13.so") {
		t.Errorf("files that cannot be read: %q", got)
	}
}
