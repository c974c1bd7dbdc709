// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const apache = "Apache-2.0"

var spaces = regexp.MustCompile(`\s+`)

// identify returns the SPDX identifiers of the licenses in a text.
func identify(text string) (names []string) {
	text = spaces.ReplaceAllString(text, " ")
	has := func(parts ...string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	}
	if has("Apache License", "Version 2.0") {
		names = append(names, apache)
	}
	if has("Mozilla Public License", "2.0") {
		names = append(names, "MPL-2.0")
	}
	switch {
	case has("Redistribution and use in source and binary forms", "ndorse or promote products"):
		names = append(names, "BSD-3-Clause")
	case has("Redistribution and use in source and binary forms"):
		names = append(names, "BSD-2-Clause")
	}
	if has("Permission is hereby granted, free of charge") {
		names = append(names, "MIT")
	}
	if has("Permission to use, copy, modify, and", "distribute this software for any purpose") {
		names = append(names, "ISC")
	}
	return names
}

// apacheText matches the text of the Apache license, which Debian wants to be named and not repeated.
var apacheText = regexp.MustCompile(`(?s)[ \t]*Apache License\s+Version 2\.0, January 2004.*?(END OF TERMS AND CONDITIONS|of your accepting any such warranty or additional liability\.)(\s+APPENDIX: How to apply.*?limitations under the License\.)?`)

func withoutApache(text string) string {
	return apacheText.ReplaceAllString(text, "Apache License, Version 2.0")
}

var copyrightLine = regexp.MustCompile(`(?im)^[ \t#/*]*(copyright(?: ©| \(c\))? [0-9©(].*)$`)

// copyrightLines returns the lines of a license that name holders: "Copyright 2009 The Go Authors."
func copyrightLines(text string) (lines []string) {
	for _, match := range copyrightLine.FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(match[1], "Copyright ")))
	}
	return lines
}

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
