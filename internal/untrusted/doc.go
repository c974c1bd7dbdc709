// SPDX-License-Identifier: Apache-2.0

// Package untrusted handles what a traced process chooses: names that a person will read, and paths
// that vramprof opens. Clean removes what a terminal or a page could misinterpret. The functions
// that open files never leave the process's root directory, never follow magic links, and never
// block on a FIFO or a device.
package untrusted
