// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"time"
)

// OpenHost opens this machine's driver. It gives up after 5 s if the driver hangs.
func OpenHost(ctx context.Context) (*Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return Open(ctx, "")
}
