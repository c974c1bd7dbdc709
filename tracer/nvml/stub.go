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

// PrintOrder is not there without cgo.
func PrintOrder(io.Writer) error { return ErrUnavailable }
