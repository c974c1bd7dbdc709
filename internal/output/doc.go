// SPDX-License-Identifier: Apache-2.0

// Package output names and writes the files and streams that hold results.
//
// A file gets its name when it is complete, has mode 0600 and replaces no other, unless the user
// wants that. A stream is written into. A result that cannot be written where the user wants it is
// saved in the folder for temporary files.
package output
