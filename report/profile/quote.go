// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"strings"

	"github.com/google/pprof/profile"
)

// quote replaces what pprof does not escape in its graph, where one label `local "t".x` makes
// Graphviz fail: quotes and backslashes in labels and in names of files.
func quote(p *profile.Profile) {
	for _, x := range p.Sample {
		for _, list := range x.Label {
			for i := range list {
				list[i] = quoted.Replace(list[i])
			}
		}
	}
	for _, m := range p.Mapping {
		m.File = quoted.Replace(m.File)
	}
}

var (
	quoted   = strings.NewReplacer(`"`, "”", `\`, "∖")
	unquoted = strings.NewReplacer("”", `"`, "∖", `\`)
)
