// SPDX-License-Identifier: Apache-2.0

// Package symbolize turns ELF addresses into functions, files, lines and inlined calls.
//
// Names come from .symtab, else from the .symtab of a separate debug file, else from .dynsym. Lines
// and inlined calls come from the DWARF of the file or of its debug file. Names of just-in-time
// compiled code come from perf map files.
//
// The files belong to traced processes and are not trusted. The package reads them with ReadAt and
// never maps them: truncating a mapped file raises SIGBUS, while a read returns an error. Sizes are
// checked against the file; counts and the time spent on each file's DWARF are bounded. Past a
// bound, names have no lines and Stats counts the file.
//
// A slow file system (such as a FUSE mount of the traced process) delays symbolization without a
// bound.
//
// Not supported: .gnu_debugdata (xz, which the standard library cannot read), split DWARF (.dwo),
// and 32-bit or big-endian files.
package symbolize
