// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"os"
	"strings"

	"github.com/vramprof/vramprof/internal/filekind"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/profile"
)

// SplitMoment splits "run.vram@peak", unless a file has that name.
func SplitMoment(name string) (path, at string) {
	if i := strings.LastIndexByte(name, '@'); i > 0 {
		if _, err := os.Lstat(name); err != nil {
			return name[:i], name[i+1:]
		}
	}
	return name, ""
}

// Profile reads a profile. It reports false if the file is none; then it may be a capture.
func (o Options) Profile(path string) (p profile.Profile, isProfile bool, err error) {
	f, err := untrusted.OpenRegular(path)
	if err != nil {
		return p, false, nil // the error of reading it as a capture is better
	}
	defer f.Close()
	magic := make([]byte, 2)
	if n, _ := f.ReadAt(magic, 0); n != 2 || magic[0] != 0x1f || magic[1] != 0x8b { // gzip
		return p, false, nil
	}
	if o.Unlimited {
		p, err = profile.ReadUnlimited(f)
	} else {
		p, err = profile.Read(f)
	}
	if err == nil {
		return p, true, nil
	}
	if k := filekind.Of(path); k.Known() && k.Class != filekind.Profile {
		return p, false, fmt.Errorf("read %s: %s", path, k.Text(path, "a capture or profile"))
	}
	return p, false, fmt.Errorf("%s: %w", path, err)
}
