// SPDX-License-Identifier: Apache-2.0

// Package output lists the formats of results, and writes results into files and streams.
//
// The file formats.go has the table of formats. The flags of commands, their help and their errors
// follow from it.
//
// A file gets its name when it is complete, has mode 0600 and replaces no other, unless the user
// wants that. A stream is written into. A result that cannot be written where the user wants it is
// saved in the folder for temporary files.
package output
