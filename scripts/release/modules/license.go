// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// apacheText matches the text of the Apache license, which Debian wants to be named and not
// repeated.
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
