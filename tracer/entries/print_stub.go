// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package entries

// Print returns ErrUnavailable: this build has no cgo.
func Print([]string) error { return ErrUnavailable }
