// SPDX-License-Identifier: Apache-2.0

// Package symbolize turns ELF addresses into function, file, line and inlined
// calls.
//
// Names come from .symtab, else from the .symtab of a separate debug file, else
// from .dynsym. Lines and inlined calls come from the DWARF of the file or its
// debug file. Code of just-in-time compilers is named by perf map files.
//
// The files belong to traced processes, so nothing in them is trusted. They are
// read with ReadAt and never mapped: a mapped file that somebody cuts short ends
// in SIGBUS, a read of it ends in an error. All sizes are checked against the
// file, all counts and the time spent on a file's DWARF are bounded; beyond the
// bound there are names without lines, and Stats says so.
//
// A file system that answers late (a FUSE mount of the traced process) delays
// us; that cannot be bounded.
//
// Not read: .gnu_debugdata (xz; the standard library has no reader for it),
// split DWARF (.dwo) and 32-bit or big-endian files.
package symbolize
