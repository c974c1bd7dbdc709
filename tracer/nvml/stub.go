// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package nvml

import (
	"fmt"
	"io"
)

func open(string) (library, string, error) {
	return nil, "", fmt.Errorf("%w: built without cgo", ErrUnavailable)
}

// PrintOrder returns ErrUnavailable: this build has no cgo.
func PrintOrder(io.Writer) error { return ErrUnavailable }
