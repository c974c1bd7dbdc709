// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package procaddr

// Print returns ErrUnavailable: this build has no cgo.
func Print([]string) error { return ErrUnavailable }
