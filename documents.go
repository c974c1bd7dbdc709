// SPDX-License-Identifier: Apache-2.0

// Package vramprof holds the documents that "vramprof help" shows.
package vramprof

import "embed"

// Documents holds SECURITY.md and docs/*.md.
//
//go:embed SECURITY.md docs/*.md
var Documents embed.FS
