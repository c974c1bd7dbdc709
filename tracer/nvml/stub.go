// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package nvml

import "fmt"

func open(string) (library, string, error) {
	return nil, "", fmt.Errorf("%w: built without cgo", ErrUnavailable)
}
