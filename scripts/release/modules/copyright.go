// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

const copyrightHead = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: vramprof
Source: https://github.com/vramprof/vramprof
Comment: The program contains the Go modules below, as paragraphs of Files with their paths.

Files: *
Copyright: 2026 the authors of vramprof
License: Apache-2.0

Files: bpf/*
Copyright: 2026 the authors of vramprof
 the authors of the OpenTelemetry eBPF profiler
License: GPL-2.0-only
Comment: The program contains these objects as data, and loads them into the kernel.
`

const copyrightTail = `
License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0. Elsewhere it is in the file LICENSE
 beside this one.

License: GPL-2.0-only
 On Debian systems, the text of the GNU General Public License, version 2, is in
 /usr/share/common-licenses/GPL-2. Elsewhere it is in the file LICENSE.GPL-2
 beside this one.
`

// copyrightOf returns Debian's file of copyrights and licenses.
func copyrightOf(list []module) string {
	var b strings.Builder
	b.WriteString(copyrightHead)
	for _, m := range list {
		holders := m.copyrights
		if len(holders) == 0 {
			holders = []string{"the authors of " + m.path}
		}
		fmt.Fprintf(&b, "\nFiles: %s@%s\nCopyright: %s\n", m.path, m.version, strings.Join(slices.Compact(holders), "\n "))
		if len(m.texts) == 0 {
			fmt.Fprintf(&b, "License: %s\n", m.license)
			continue
		}
		// The text of a license of one's own makes its short name unique.
		fmt.Fprintf(&b, "License: %s\n%s", strings.ReplaceAll(m.license, " AND ", " and "), paragraphs(m.texts))
	}
	b.WriteString(copyrightTail)
	return b.String()
}

// paragraphs indents texts as values of a field: empty lines are " .".
func paragraphs(texts []string) string {
	var b strings.Builder
	for i, text := range texts {
		if i > 0 {
			b.WriteString(" .\n")
		}
		for line := range strings.Lines(strings.TrimSpace(text)) {
			if line = strings.TrimRight(line, " \t\r\n"); line == "" {
				line = "."
			}
			b.WriteString(" " + line + "\n")
		}
	}
	return b.String()
}
